"""What clients send, read leniently: the parameters of each message as structs of ours.

Clients are older and looser than the protocol's text: trigger kinds counted from 0, ranges written
as arrays, contexts left out, settings of any shape. What is not needed is not looked at, what is
needed and can be understood is taken, and only the rest raises `msgspec.ValidationError`. It knows
nothing of how messages travel.

Invariant: no field that a client may leave out is required here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lsp.positions import Change, ClientPosition, ClientRange

INVOKED = 1
AUTOMATIC = 2
SECTION = "sspecAssist"
"""The settings' name in every client."""


class _Camel(Struct, frozen=True, kw_only=True, rename="camel"):
    """Written in camelCase by clients."""


class DocumentId(_Camel, frozen=True, kw_only=True):
    """Names a document, and its version where the client gives one."""

    uri: str
    version: int | None = None


class DocumentItem(_Camel, frozen=True, kw_only=True):
    """A document as it is opened."""

    uri: str
    language_id: str = ""
    version: int | None = None
    text: str = ""


class DidOpen(_Camel, frozen=True, kw_only=True):
    text_document: DocumentItem


class DidChange(_Camel, frozen=True, kw_only=True):
    text_document: DocumentId
    content_changes: tuple[Change, ...] = ()


class DidClose(_Camel, frozen=True, kw_only=True):
    text_document: DocumentId


class Cell(_Camel, frozen=True, kw_only=True):
    document: str


class Notebook(_Camel, frozen=True, kw_only=True):
    uri: str
    cells: tuple[Cell, ...] = ()


class DidOpenNotebook(_Camel, frozen=True, kw_only=True):
    notebook_document: Notebook
    cell_text_documents: tuple[DocumentItem, ...] = ()


class CellArray(_Camel, frozen=True, kw_only=True):
    start: int
    delete_count: int = 0
    cells: tuple[Cell, ...] | None = None


class CellStructure(_Camel, frozen=True, kw_only=True):
    array: CellArray
    did_open: tuple[DocumentItem, ...] | None = None
    did_close: tuple[DocumentId, ...] | None = None


class CellText(_Camel, frozen=True, kw_only=True):
    document: DocumentId
    changes: tuple[Change, ...] = ()


class CellChanges(_Camel, frozen=True, kw_only=True):
    structure: CellStructure | None = None
    text_content: tuple[CellText, ...] | None = None


class NotebookChange(_Camel, frozen=True, kw_only=True):
    cells: CellChanges | None = None


class DidChangeNotebook(_Camel, frozen=True, kw_only=True):
    notebook_document: DocumentId
    change: NotebookChange = NotebookChange()


class DidCloseNotebook(_Camel, frozen=True, kw_only=True):
    notebook_document: DocumentId
    cell_text_documents: tuple[DocumentId, ...] = ()


class Folder(_Camel, frozen=True, kw_only=True):
    uri: str


class FolderEvent(_Camel, frozen=True, kw_only=True):
    added: tuple[Folder, ...] = ()
    removed: tuple[Folder, ...] = ()


class DidChangeFolders(_Camel, frozen=True, kw_only=True):
    event: FolderEvent


class DidChangeConfiguration(_Camel, frozen=True, kw_only=True):
    settings: Any = None


class ExecuteCommand(_Camel, frozen=True, kw_only=True):
    command: str
    arguments: tuple[Any, ...] | None = None


class Cancel(_Camel, frozen=True, kw_only=True):
    id: int | str


class InlineCompletion(_Camel, frozen=True, kw_only=True):
    """A wish for grey text; `context` is read by `trigger_kind` and `selected`."""

    text_document: DocumentId
    position: ClientPosition
    context: Any = None


class ClientSelection(Struct, frozen=True, kw_only=True):
    """The entry that is chosen in the client's own completion list, and what it would replace."""

    range: ClientRange
    text: str


PARAMS: Mapping[str, type[Struct]] = {
    "textDocument/didOpen": DidOpen,
    "textDocument/didChange": DidChange,
    "textDocument/didClose": DidClose,
    "notebookDocument/didOpen": DidOpenNotebook,
    "notebookDocument/didChange": DidChangeNotebook,
    "notebookDocument/didClose": DidCloseNotebook,
    "workspace/didChangeWorkspaceFolders": DidChangeFolders,
    "workspace/didChangeConfiguration": DidChangeConfiguration,
    "workspace/executeCommand": ExecuteCommand,
    "textDocument/inlineCompletion": InlineCompletion,
    "$/cancelRequest": Cancel,
}


def parsed(method: str, params: Any) -> Any:
    """The parameters of a message; those of a method that is not in `PARAMS` as they came.

    Raises `msgspec.ValidationError`, which says what is missing or wrong, and where.
    """
    kind = PARAMS.get(method)
    if kind is None:
        return params
    return msgspec.convert({} if params is None else params, kind, strict=False)


def dug(value: Any, *keys: str) -> Any:
    """What lies under `keys` in nested objects; None wherever the path breaks off."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def selected(context: Any) -> ClientSelection | None:
    """The selection told by a context, with a range in either shape; None if it can't be read."""
    info = dug(context, "selectedCompletionInfo")
    place, text = dug(info, "range"), dug(info, "text")
    if is_array_range(context):
        place = {"start": place[0], "end": place[1]}
    try:
        return msgspec.convert({"range": place, "text": text}, ClientSelection, strict=False)
    except msgspec.ValidationError:
        return None


def is_array_range(context: Any) -> bool:
    """Whether the selection's range is written as an array, as vscode-languageclient 9 does."""
    place = dug(context, "selectedCompletionInfo", "range")
    return isinstance(place, list) and len(place) == 2


class TriggerKinds:
    """What the number behind `triggerKind` means for the client of this session.

    The protocol has 1 for a key that was pressed for it and 2 for typing. vscode-languageclient 9
    has 0 and 1 for the same. So 1 is settled by what was seen of the client before; until anything
    was, one that comes right after a change is taken for typing.
    """

    def __init__(self) -> None:
        self._old: bool | None = None

    def explicit(self, context: Any, *, just_typed: bool) -> bool:
        """Whether the user asked for this completion."""
        kind = dug(context, "triggerKind")
        if kind == AUTOMATIC:
            self._old = False
        elif kind == 0 or is_array_range(context):
            self._old = True
        if kind == INVOKED:
            return not just_typed if self._old is None else not self._old
        return bool(kind == 0)
