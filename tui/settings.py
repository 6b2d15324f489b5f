"""Settings of the chat: table `[chat]`, and what of all settings a running chat can take over.

It owns names, defaults and meaning, and must not know where a value comes from. It imports no
Textual, so that `config check` stays light; whether a theme of that name exists is told by the
application when it is asked to put it on.
"""

from __future__ import annotations

from msgspec import Struct

from engine.protocol import RouteChoice, SamplingParams


class ChatSettings(Struct, frozen=True, kw_only=True):
    """How the chat looks when it starts; each can be changed by a key while it runs."""

    theme: str = "textual-dark"
    provenance: bool = False
    """Show where each token of an answer came from."""
    details: bool = False
    """Show the panel with the speculation's details."""


class LiveSettings(Struct, frozen=True, kw_only=True):
    """What may change while the chat runs: it holds from the next answer on."""

    chat: ChatSettings = ChatSettings()
    sampling: SamplingParams = SamplingParams()
    route: RouteChoice = "auto"
