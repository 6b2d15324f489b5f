"""The documents that a client has open, the cells of its notebooks and its workspace folders.

Every cell is a document; what is special about one is only that the cells before it are part of its
context. Clients that know notebooks tell their order; of the others the cells come as documents of
their own, and the order in which they were opened stands for it. It knows nothing of messages.

Invariant: what a client says of a document that is not open changes nothing and raises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from lsp.document import Document, Edit, Snapshot
from lsp.positions import DEFAULT, Change, Encoding, apply_changes
from lsp.uris import name_within, notebook_of, path_of


class Opened(Struct, frozen=True, kw_only=True):
    """A document as a client opens it."""

    uri: str
    language: str = ""
    version: int = 0
    text: str = ""


class Documents:
    """What is open, by URI."""

    def __init__(self) -> None:
        self.encoding: Encoding = DEFAULT
        self._documents: dict[str, Document] = {}
        self._notebooks: dict[str, list[str]] = {}
        """Notebook → its cells in order, opened as documents or not."""
        self._folders: dict[str, Path] = {}
        self._lost: dict[str, Document] = {}
        """Documents whose text is not known any more, as they were last known."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """The workspace folders that are on this machine, in the client's order."""
        return tuple(self._folders.values())

    def get(self, uri: str) -> Document | None:
        """The open document, as it is now."""
        return self._documents.get(uri)

    def uris(self) -> tuple[str, ...]:
        """All open documents, in the order in which they were opened."""
        return tuple(self._documents)

    def snapshot(self, uri: str, offset: int = 0) -> Snapshot | None:
        """An open document as it is now, looked at from `offset`."""
        document = self._documents.get(uri)
        if document is None:
            return None
        return document.snapshot(offset, before=self._before(document))

    def open(self, opened: Opened) -> Document:
        """Take in a document; one that is open already is replaced."""
        path = path_of(opened.uri)
        document = Document(
            opened.uri,
            opened.text,
            version=opened.version,
            language=opened.language,
            path=path,
            name=name_within(path, self.folders),
        )
        self._lost.pop(opened.uri, None)
        self._documents.pop(opened.uri, None)
        self._documents[opened.uri] = document
        return document

    def change(
        self, uri: str, version: int | None, changes: Sequence[Change]
    ) -> tuple[Edit, ...] | None:
        """Apply the changes of one message; None if the document is not open."""
        document = self._documents.get(uri)
        if document is None:
            return None
        edits = apply_changes(document, changes, self.encoding)
        document.version = document.version + 1 if version is None else version
        return edits

    def lose(self, uri: str) -> bool:
        """A change of a document could not be read: count it as closed until its whole text comes
        again. False if it was not open."""
        document = self._documents.pop(uri, None)
        if document is not None:
            self._lost[uri] = document
        return document is not None

    def is_lost(self, uri: str) -> bool:
        """Whether a document is open and its text not known."""
        return uri in self._lost

    def found(self, uri: str, version: int | None, changes: Sequence[Change]) -> bool:
        """Open a lost document again if one of the changes holds its whole text."""
        whole = [n for n, change in enumerate(changes) if change.range is None]
        if not whole:
            return False
        lost = self._lost[uri]
        text = changes[whole[-1]].text
        self.open(Opened(uri=uri, language=lost.language, version=version or 0, text=text))
        self.change(uri, version, changes[whole[-1] + 1 :])
        return True

    def cells(self, notebook: str) -> tuple[str, ...]:
        """A notebook's cells, as far as the client has told."""
        return tuple(self._notebooks.get(notebook, ()))

    def close(self, uri: str) -> bool:
        """Forget a document; False if it was not open."""
        self._lost.pop(uri, None)
        return self._documents.pop(uri, None) is not None

    def order_cells(self, notebook: str, cells: Sequence[str]) -> None:
        """Take in a notebook's cells, all of them."""
        self._notebooks[notebook] = list(cells)

    def splice_cells(self, notebook: str, start: int, deleted: int, cells: Sequence[str]) -> None:
        """Put cells in the place of those from `start` on."""
        order = self._notebooks.setdefault(notebook, [])
        order[start : start + deleted] = cells

    def forget_notebook(self, notebook: str) -> None:
        """A notebook was closed; its cells are closed by themselves."""
        self._notebooks.pop(notebook, None)

    def change_folders(self, added: Sequence[str], removed: Sequence[str]) -> None:
        """Workspace folders came and went, named by their URIs."""
        for uri in removed:
            self._folders.pop(uri, None)
        for uri in added:
            path = path_of(uri)
            if path is not None:
                self._folders[uri] = path
        for document in self._documents.values():
            document.name = name_within(document.path, self.folders)

    def _before(self, document: Document) -> str:
        cells = self._cells_before(document.uri)
        earlier = [self._documents[uri] for uri in cells if uri in self._documents]
        return "".join(
            f"{cell.text}\n" for cell in earlier if cell.language == document.language and cell.text
        )

    def _cells_before(self, uri: str) -> Sequence[str]:
        for order in self._notebooks.values():
            if uri in order:
                return order[: order.index(uri)]
        notebook = notebook_of(uri)
        if not notebook:
            return ()
        order = [other for other in self._documents if notebook_of(other) == notebook]
        return order[: order.index(uri)]
