"""The first exchange of a session: what a client says of itself, and what it is told.

Pure: `initialize` parameters in, what matters of them out. A client that declares less than it can
do (some send inline completion requests and never say so) is not held to it. It knows nothing of
messages or of what the server does with them.

Invariant: whatever the parameters look like, there is a `Hello`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from lsp.messages import dug
from lsp.positions import Encoding, chosen

ACCEPTED = "sspecAssist.accepted"
"""The command that an item carries: it was accepted as a whole."""

_INCREMENTAL = 2
_NAMED_UNKNOWN = "emacs"
"""Warns its user of each notification that it does not know."""


class Hello(Struct, frozen=True, kw_only=True):
    """What matters of a client."""

    name: str = ""
    process_id: int | None = None
    """Of the client, if it can be seen from here; the server ends when it is gone."""
    encoding: Encoding = "utf-16"
    folders: tuple[str, ...] = ()
    """URIs of the workspace folders; without any, that of the root."""
    options: Any = None
    """The initialization options, as they came."""
    pulls: bool = False
    """It answers `workspace/configuration`."""
    registers: bool = False
    """It can be asked to tell changed settings."""
    progress: bool = False
    """It shows work-done progress that the server begins."""
    status: bool = True
    """It is told `sspecAssist/status`."""

    @property
    def line_feeds_only(self) -> bool:
        """It puts inserted text into its buffer as it is, whose lines are kept without line ends:
        a `\\r` would stay in them as a character."""
        return self.name.lower() in ("neovim", "emacs")


def hello_from(params: Any) -> Hello:
    """Read the parameters of `initialize`."""
    capabilities = dug(params, "capabilities")
    offered = dug(capabilities, "general", "positionEncodings")
    name, process = dug(params, "clientInfo", "name"), dug(params, "processId")
    name = name if isinstance(name, str) else ""
    options = dug(params, "initializationOptions")
    wants = dug(options, "status")
    return Hello(
        name=name,
        process_id=process if type(process) is int else None,
        encoding=chosen([one for one in offered if isinstance(one, str)] if offered else []),
        folders=_folders(params),
        options=options,
        pulls=dug(capabilities, "workspace", "configuration") is True,
        registers=dug(capabilities, "workspace", "didChangeConfiguration", "dynamicRegistration")
        is True,
        progress=dug(capabilities, "window", "workDoneProgress") is True,
        status=wants if isinstance(wants, bool) else name.lower() != _NAMED_UNKNOWN,
    )


def reply_to(hello: Hello, version: str) -> dict[str, Any]:
    """The result of `initialize`."""
    return {
        "serverInfo": {"name": "sspec-assist", "version": version},
        "capabilities": {
            "positionEncoding": hello.encoding,
            "textDocumentSync": {"openClose": True, "change": _INCREMENTAL},
            "notebookDocumentSync": {"notebookSelector": [{"notebook": "*"}]},
            "inlineCompletionProvider": {"workDoneProgress": False},
            "executeCommandProvider": {"commands": [ACCEPTED]},
            "workspace": {"workspaceFolders": {"supported": True, "changeNotifications": True}},
        },
    }


def _folders(params: Any) -> tuple[str, ...]:
    listed = dug(params, "workspaceFolders")
    uris = [dug(folder, "uri") for folder in listed] if isinstance(listed, list) else []
    if not uris:
        root, path = dug(params, "rootUri"), dug(params, "rootPath")
        absolute = isinstance(path, str) and Path(path).is_absolute()
        uris = [Path(path).as_uri() if root is None and absolute else root]
    return tuple(uri for uri in uris if isinstance(uri, str))
