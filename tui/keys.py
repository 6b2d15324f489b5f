"""Every key of the chat, once: what it is, what it does and how it is called.

The screen's bindings, the command palette and the help all read this table, so that none of them
can tell of a key that another lacks. Knows names of actions, not what they do.
"""

from __future__ import annotations

from msgspec import Struct
from textual.binding import Binding


class Key(Struct, frozen=True, kw_only=True):
    """One key, or several for the same, and the screen's action it calls."""

    keys: str
    """As Textual writes them, comma-separated; empty for what only the palette offers."""
    action: str
    title: str
    help: str


KEYS: tuple[Key, ...] = (
    Key(keys="f1", action="help", title="Help", help="keys and commands"),
    Key(keys="ctrl+k,f2", action="palette", title="Palette", help="all commands, searched"),
    Key(
        keys="escape",
        action="stop",
        title="Stop",
        help="stop the answer, keeping what came; give up a load",
    ),
    Key(keys="f3", action="details", title="Details", help="the speculation in detail"),
    Key(keys="ctrl+t", action="provenance", title="Provenance", help="where each token came from"),
    Key(keys="ctrl+r", action="sessions", title="Conversations", help="search, resume, delete"),
    Key(keys="ctrl+n", action="new", title="New conversation", help="begin afresh"),
    Key(
        keys="f5",
        action="cycle_route",
        title="Route",
        help="auto, plain and each way to draft in turn; also in mid-answer",
    ),
    Key(
        keys="f6",
        action="pin_k",
        title="Pin k",
        help="tokens drafted a round: free, 1, 2, 4, 8 in turn",
    ),
    Key(
        keys="f7",
        action="speculation",
        title="Speculation",
        help="switch drafting off and on; also in mid-answer",
    ),
    Key(
        keys="f8",
        action="check",
        title="Check",
        help="answer again plainly and say whether the text is the same",
    ),
    Key(
        keys="f9",
        action="version",
        title="Other version",
        help="the next of several answers, or questions, in one place",
    ),
    Key(keys="", action="regenerate", title="Regenerate", help="answer the last question again"),
    Key(keys="", action="go_on", title="Continue", help="go on with the last answer"),
    Key(keys="", action="model", title="Model", help="choose or fetch another"),
    Key(keys="", action="export", title="Export", help="write the conversation to a file"),
    Key(keys="", action="undo", title="Undo", help="take back the last change to a file"),
)

LADDER = Key(
    keys="ctrl+c",
    action="interrupt",
    title="Interrupt",
    help="copy the selection; clear the input; stop; twice: quit",
)


def bindings() -> list[Binding]:
    """The table as bindings of the chat's screen.

    Priority: the input would take some of these keys for itself while it has the focus.
    """
    return [
        Binding(key.keys, key.action, key.title, priority=key.keys != "escape")
        for key in KEYS
        if key.keys
    ]
