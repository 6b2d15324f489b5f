"""The index of the workspace's files: what is in it, how it hears of changes, where it stops."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from watchdog.events import DirMovedEvent, FileModifiedEvent, FileMovedEvent

from engine.project_files.tree import Folder, Limits, ProjectTree
from lsp.file_index import REST_S, UNWATCHED_S, WATCHED_S, FileIndex
from lsp.file_texts import MAX_BYTES, Texts, read_text
from lsp.file_watch import MAX_NOTED, FileWatch, Notes

PATIENCE_S = 10.0


class HandWatch:
    """A watch whose notes a test writes."""

    def __init__(self, *, covers: bool = True) -> None:
        self.notes = Notes()
        self.covers = covers
        self.walks = 0
        self.closed = False

    def cover(self, roots: Sequence[str], walked: Sequence[Folder]) -> bool:
        self.notes.roots = tuple(roots)
        self.walks += 1
        return self.covers

    def close(self) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in ("a.py", "sub/b.py", "node_modules/x.js", ".env", "out/c.py"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (folder / ".gitignore").write_text("out/\n")
    return folder


def names(index: FileIndex, root: Path) -> set[str]:
    return {Path(path).relative_to(root).as_posix() for path in index.files}


def indexed(root: Path, watch: HandWatch, clock: Clock, limits: Limits | None = None) -> FileIndex:
    index = FileIndex(lambda: watch, limits=limits or Limits(), clock=clock)
    index.use((root,))
    assert index.refresh()
    return index


def test_it_has_what_may_be_read(root: Path) -> None:
    index = indexed(root, HandWatch(), Clock())
    assert names(index, root) == {"a.py", "sub/b.py", ".gitignore"}
    assert not index.is_due
    assert not index.refresh()


def test_a_noted_file_is_looked_at_again(root: Path) -> None:
    watch = HandWatch()
    index = indexed(root, watch, Clock())
    (root / "a.py").rename(root / "z.py")
    watch.notes.on_any_event(FileMovedEvent(str(root / "a.py"), str(root / "z.py")))
    (root / "sub/b.py").rename(root / ".env.local")
    watch.notes.on_any_event(FileMovedEvent(str(root / "sub/b.py"), str(root / ".env.local")))
    assert index.is_due
    assert index.refresh()
    assert names(index, root) == {"z.py", ".gitignore"}
    assert watch.walks == 1


def test_what_cannot_matter_is_not_noted(root: Path) -> None:
    watch = HandWatch()
    index = indexed(root, watch, Clock())
    for name in (".env", "node_modules/x.js", ".git/index", "../elsewhere.py"):
        watch.notes.on_any_event(FileModifiedEvent(str((root / name).resolve())))
    assert not index.is_due
    watch.notes.on_any_event(FileModifiedEvent(str(root / "out/c.py")))
    assert not index.refresh(), "git ignores it"


@pytest.mark.parametrize("cause", ["folder", "rules", "exclude", "many"])
def test_greater_changes_mean_a_new_walk_after_a_rest(root: Path, cause: str) -> None:
    watch, clock = HandWatch(), Clock()
    index = indexed(root, watch, clock)
    if cause == "folder":
        watch.notes.on_any_event(DirMovedEvent(str(root / "sub"), str(root / "new")))
        (root / "sub").rename(root / "new")
    elif cause == "rules":
        (root / ".gitignore").write_text("out/\nsub/\n")
        watch.notes.on_any_event(FileModifiedEvent(str(root / ".gitignore")))
    elif cause == "exclude":
        (root / ".git/info").mkdir(parents=True)
        (root / ".git/info/exclude").write_text("sub/\n")
        watch.notes.on_any_event(FileModifiedEvent(str(root / ".git/info/exclude")))
    else:
        (root / "sub/b.py").unlink()
        for n in range(MAX_NOTED + 1):
            watch.notes.on_any_event(FileModifiedEvent(str(root / f"{n}.py")))
    assert not index.is_due, "a walk has only just been"
    clock.now += REST_S + 0.1
    assert index.refresh()
    assert "sub/b.py" not in names(index, root)
    assert watch.walks == 2


@pytest.mark.parametrize(("covers", "age"), [(True, WATCHED_S), (False, UNWATCHED_S)])
def test_where_the_watch_does_not_reach_it_walks_again(
    root: Path, covers: bool, age: float
) -> None:
    clock = Clock()
    index = indexed(root, HandWatch(covers=covers), clock)
    (root / "new.py").write_text("")
    clock.now += age - 1
    assert not index.is_due
    clock.now += 2
    assert index.refresh()
    assert "new.py" in names(index, root)


def test_there_is_a_bound_and_it_counts_as_unwatched(root: Path) -> None:
    for n in range(30):
        (root / f"f{n}.py").write_text("")
    clock, watch = Clock(), HandWatch()
    index = indexed(root, watch, clock, Limits(files=10))
    assert len(index.files) == 10
    (root / "late.py").write_text("")
    watch.notes.on_any_event(FileModifiedEvent(str(root / "late.py")))
    index.refresh()
    assert len(index.files) == 10
    clock.now += UNWATCHED_S + 1
    assert index.is_due


def test_other_folders_begin_anew_and_a_stopped_index_stays_as_it_is(root: Path) -> None:
    watch = HandWatch()
    index = indexed(root, watch, Clock())
    index.use((root / "sub",))
    assert index.files == {}
    index.refresh()
    assert names(index, root) == {"sub/b.py"}
    index.close()
    index.use((root,))
    assert not index.refresh()
    assert watch.closed


# The real watch


def eventually(check: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def watched(root: Path) -> Iterator[tuple[FileIndex, Path]]:
    index = FileIndex()
    index.use((root,))
    index.refresh()
    yield index, root
    index.close()


def test_the_system_tells_of_new_changed_moved_and_deleted_files(
    watched: tuple[FileIndex, Path],
) -> None:
    index, root = watched

    def shows(*expected: str) -> bool:
        index.refresh()
        return names(index, root) == {*expected, ".gitignore"}

    (root / "sub/new.py").write_text("new")
    assert eventually(lambda: shows("a.py", "sub/b.py", "sub/new.py"))
    before = index.files[str(root / "a.py")]
    (root / "a.py").write_text("longer")
    assert eventually(lambda: index.refresh() and index.files[str(root / "a.py")] != before)
    (root / "a.py").rename(root / "sub/moved.py")
    (root / "sub/new.py").unlink()
    assert eventually(lambda: shows("sub/b.py", "sub/moved.py"))


def test_reading_a_file_is_no_change(watched: tuple[FileIndex, Path]) -> None:
    index, root = watched
    read_text(root / "a.py")
    (root / "sub/new.py").write_text("")
    assert eventually(lambda: index.is_due)
    index.refresh()
    read_text(root / "a.py")
    time.sleep(0.1)
    assert not index.is_due


def threads() -> set[str]:
    """Running threads but the one that watchdog shares among all its watches for good."""
    return {thread.name for thread in threading.enumerate() if type(thread).__name__ != "InotifyFD"}


def walk(root: Path) -> list[Folder]:
    return list(ProjectTree(root).walk(threading.Event()))


def test_small_trees_take_one_watch_and_large_ones_only_their_own_folders(root: Path) -> None:
    before = threads()
    watch = FileWatch()
    assert watch.cover((str(root),), walk(root))
    assert len(threads() - before) == 2, "an observer and one emitter"
    watch.close()
    assert threads() == before
    for n in range(20):
        (root / f"node_modules/p{n}").mkdir()
    small = FileWatch(max_folders=16)
    assert small.cover((str(root),), walk(root))
    (root / "node_modules/p1/i.js").write_text("")
    (root / "sub/deep").mkdir()
    assert eventually(lambda: small.notes.all_changed)
    small.close()
    few = FileWatch(max_watches=1, max_folders=16)
    assert not few.cover((str(root),), walk(root))
    few.close()
    assert threads() == before


def test_what_cannot_be_watched_is_said(root: Path, tmp_path: Path) -> None:
    walked = walk(root)
    root.rename(tmp_path / "gone")
    watch = FileWatch()
    assert not watch.cover((str(root),), walked)
    watch.close()
    watch.close()


# Texts


def test_only_plain_text_of_sensible_size_is_read(tmp_path: Path) -> None:
    kinds = {"text": b"a = 1\n", "bom": b"\xef\xbb\xbfa = 1\n", "binary": b"a\0b", "latin": b"\xe9"}
    kinds["large"] = b"x" * (MAX_BYTES + 1)
    for name, content in kinds.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").symlink_to(tmp_path / "text")
    os.mkfifo(tmp_path / "fifo")
    read = {name: read_text(tmp_path / name) for name in (*kinds, "link", "fifo", "none", ".")}
    assert read.pop("text") == read.pop("bom") == "a = 1\n"
    assert set(read.values()) == {""}


def test_a_text_is_read_once_for_each_of_its_states(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("first = 1\n")
    texts = Texts()
    first = texts.of_file(file, 1)
    file.write_text("second = 2\n")
    assert texts.of_file(file, 1) is first
    assert texts.of_file(file, 2)[0].words == {"second"}


def test_the_least_used_text_is_forgotten() -> None:
    texts = Texts(max_kept=100)
    one = texts.of_text("one", 1, "alpha " * 6)
    two = texts.of_text("two", 1, "beta " * 6)
    assert texts.of_text("one", 1, "") is one
    texts.of_text("three", 1, "gamma " * 6)
    assert texts.of_text("one", 1, "") is one
    assert texts.of_text("two", 1, "beta " * 6) is not two
