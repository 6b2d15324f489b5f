"""Keeps the documents as the client has them, and tells those who listen what changed.

The one place where the client's messages about documents, notebooks and folders take effect. They
are applied at once and in order; who listens is told after. A listener that fails is logged and
hurts neither the documents nor the others. It knows nothing of completions.

Invariant: a listener hears of a document by `opened`, then by any number of `changed`, then by
`closed`; one that comes late hears `opened` for everything that is open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lsp.document import Edit, Snapshot
from lsp.documents import Documents, Opened
from lsp.messages import (
    DidChange,
    DidChangeFolders,
    DidChangeNotebook,
    DidClose,
    DidCloseNotebook,
    DidOpen,
    DidOpenNotebook,
    DocumentId,
    DocumentItem,
    dug,
)
from lsp.positions import Change

log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who is told of documents. All of it is called on the event loop and must not wait."""

    def opened(self, snapshot: Snapshot) -> None:
        """A document was opened, or opened anew."""
        ...

    def changed(self, snapshot: Snapshot, edits: tuple[Edit, ...]) -> None:
        """A document became `snapshot`, whose offset is the last edit's end."""
        ...

    def closed(self, uri: str) -> None:
        """A document was closed."""
        ...

    def folders_changed(self, folders: tuple[Path, ...]) -> None:
        """The workspace folders of this machine are now these."""
        ...


class Sync:
    """Applies what the client says of its documents."""

    def __init__(self, documents: Documents, clock: Callable[[], float] = time.monotonic) -> None:
        self._documents = documents
        self._clock = clock
        self._listeners: list[Listener] = []
        self._changed_at: dict[str, float] = {}

    def add(self, listener: Listener) -> None:
        """Tell `listener` from now on, and first of what is open already."""
        self._listeners.append(listener)
        self._tell(partial(listener.folders_changed, self._documents.folders))
        for uri in self._documents.uris():
            self._tell_opened(uri, (listener,))

    def since_change(self, uri: str) -> float | None:
        """Seconds since a document changed last; None if it never did."""
        changed = self._changed_at.get(uri)
        return None if changed is None else self._clock() - changed

    def opened(self, params: DidOpen) -> None:
        """`textDocument/didOpen`."""
        self._open(params.text_document)

    def changed(self, params: DidChange) -> None:
        """`textDocument/didChange`."""
        self._change(params.text_document, params.content_changes)

    def closed(self, params: DidClose) -> None:
        """`textDocument/didClose`."""
        self._close(params.text_document)

    def notebook_opened(self, params: DidOpenNotebook) -> None:
        """`notebookDocument/didOpen`."""
        notebook = params.notebook_document
        self._documents.order_cells(notebook.uri, [cell.document for cell in notebook.cells])
        for item in params.cell_text_documents:
            self._open(item)

    def notebook_changed(self, params: DidChangeNotebook) -> None:
        """`notebookDocument/didChange`."""
        cells = params.change.cells
        if cells is None:
            return
        if cells.structure is not None:
            array = cells.structure.array
            order = [cell.document for cell in array.cells or ()]
            self._documents.splice_cells(
                params.notebook_document.uri, array.start, array.delete_count, order
            )
            for item in cells.structure.did_open or ():
                self._open(item)
            for gone in cells.structure.did_close or ():
                self._close(gone)
        for text in cells.text_content or ():
            self._change(text.document, text.changes)

    def notebook_closed(self, params: DidCloseNotebook) -> None:
        """`notebookDocument/didClose`."""
        self._documents.forget_notebook(params.notebook_document.uri)
        for cell in params.cell_text_documents:
            self._close(cell)

    def folders_changed(self, params: DidChangeFolders) -> None:
        """`workspace/didChangeWorkspaceFolders`."""
        self.change_folders(
            [folder.uri for folder in params.event.added],
            [folder.uri for folder in params.event.removed],
        )

    def change_folders(self, added: Sequence[str], removed: Sequence[str] = ()) -> None:
        """Folders came and went, named by their URIs."""
        self._documents.change_folders(added, removed)
        for listener in self._listeners:
            self._tell(partial(listener.folders_changed, self._documents.folders))

    def _open(self, item: DocumentItem) -> None:
        self._documents.open(
            Opened(
                uri=item.uri,
                language=item.language_id,
                version=item.version or 0,
                text=item.text,
            )
        )
        self._changed_at.pop(item.uri, None)
        self._tell_opened(item.uri, self._listeners)

    def unreadable(self, method: str, params: Any) -> None:
        """A notification could not be read. What it would have changed is not known from now on."""
        if method == "textDocument/didChange":
            lost: Sequence[Any] = (dug(params, "textDocument", "uri"),)
        elif method == "notebookDocument/didChange":
            notebook = dug(params, "notebookDocument", "uri")
            lost = self._documents.cells(notebook) if isinstance(notebook, str) else ()
        else:
            return
        for uri in lost:
            if isinstance(uri, str) and self._documents.lose(uri):
                log.warning("%s is left alone until its whole text comes again", uri)
                self._changed_at.pop(uri, None)
                for listener in self._listeners:
                    self._tell(partial(listener.closed, uri))

    def _change(self, which: DocumentId, changes: tuple[Change, ...]) -> None:
        if self._documents.is_lost(which.uri):
            if self._documents.found(which.uri, which.version, changes):
                self._tell_opened(which.uri, self._listeners)
            return
        edits = self._documents.change(which.uri, which.version, changes)
        if edits is None:
            log.info("a document changed that is not open")
            return
        if not edits:
            return
        self._changed_at[which.uri] = self._clock()
        snapshot = self._documents.snapshot(which.uri, edits[-1].start + len(edits[-1].text))
        assert snapshot is not None
        for listener in self._listeners:
            self._tell(partial(listener.changed, snapshot, edits))

    def _close(self, which: DocumentId) -> None:
        self._changed_at.pop(which.uri, None)
        if self._documents.close(which.uri):
            for listener in self._listeners:
                self._tell(partial(listener.closed, which.uri))

    def _tell_opened(self, uri: str, listeners: Iterable[Listener]) -> None:
        snapshot = self._documents.snapshot(uri)
        assert snapshot is not None
        for listener in listeners:
            self._tell(partial(listener.opened, snapshot))

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("a listener failed")
