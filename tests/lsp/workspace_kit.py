"""A workspace with an editor's side to it, for the tests of what is related."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from engine.protocol import Snippet
from lsp.document import Snapshot
from lsp.documents import Documents, Opened
from lsp.file_watch import Notes
from lsp.positions import DEFAULT, Change, ClientRange, client_position
from lsp.settings import EditorSettings
from lsp.workspace import Workspace

BUDGET = 6000


class NoWatch:
    """A watch that never tells anything."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.closed = False

    def cover(self, roots: object, walked: object) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class Editor:
    """An editor that has some files of a folder open."""

    def __init__(
        self,
        root: Path,
        *,
        folders: tuple[Path, ...] | None = None,
        settings: Callable[[], EditorSettings] = EditorSettings,
        **more: Any,
    ) -> None:
        self.root = root
        self.watch = NoWatch()
        self.documents = Documents()
        self.workspace = Workspace(settings, **({"watch": lambda: self.watch} | more))
        self.use((root,) if folders is None else folders)

    def use(self, folders: tuple[Path, ...]) -> None:
        gone = [folder.as_uri() for folder in self.documents.folders]
        self.documents.change_folders([folder.as_uri() for folder in folders], gone)
        self.workspace.folders_changed(self.documents.folders)

    def uri(self, name: str) -> str:
        return (self.root / name).as_uri()

    def open(self, name: str, text: str | None = None) -> None:
        content = (self.root / name).read_text() if text is None else text
        self.documents.open(Opened(uri=self.uri(name), language="python", text=content))
        self.workspace.opened(self.at(name, 0))

    def at(self, name: str, offset: int) -> Snapshot:
        snapshot = self.documents.snapshot(self.uri(name), offset)
        assert snapshot is not None
        return snapshot

    def end(self, name: str) -> Snapshot:
        snapshot = self.at(name, 0)
        return self.at(name, len(snapshot.text))

    def replace(self, name: str, start: int, end: int, text: str) -> None:
        """Change a piece of a document, in one message."""
        document = self.documents.get(self.uri(name))
        assert document is not None
        begin, stop = (client_position(document, at, DEFAULT) for at in (start, end))
        change = Change(text=text, range=ClientRange(start=begin, end=stop))
        edits = self.documents.change(document.uri, None, (change,))
        assert edits
        self.workspace.changed(self.at(name, start + len(text)), edits)

    def type(self, name: str, text: str) -> None:
        """Type at the end of a document, key by key."""
        for key in text:
            end = len(self.at(name, 0).text)
            self.replace(name, end, end, key)

    def close(self, name: str) -> None:
        self.documents.close(self.uri(name))
        self.workspace.closed(self.uri(name))

    async def related(self, name: str, budget: int = BUDGET) -> tuple[Snippet, ...]:
        """What is shown at the end of a document once everything has been looked at."""
        await self.workspace.related(self.end(name), budget)
        await self.workspace.settled()
        return await self.workspace.related(self.end(name), budget)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def paths(snippets: tuple[Snippet, ...]) -> list[str]:
    return [one.path for one in snippets]
