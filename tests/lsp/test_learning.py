"""What is counted of a session, what is written of it and what never is."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lsp.document import Snapshot
from lsp.documents import Documents, Opened
from lsp.learning import LATER_S, Learning
from lsp.learning_store import KEPT_DAYS, TABLES, LearningStore, open_store, open_to_read
from lsp.offer import Shown, Source
from lsp.settings import EditorSettings
from tests.fakes import round_of

SECRET_CODE = "return launch_codes[4711]"
URI = "file:///w/a.py"


class Session:
    """An editor with documents, and a clock that a test moves."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.now = 1000.0
        self.documents = Documents()
        self.learning = Learning(
            path,
            lambda: EditorSettings(**settings),
            clock=lambda: self.now,
            today=lambda: 1_800_000_000.0 + self.now,
        )
        self._ids = 0

    def open(self, text: str, uri: str = URI) -> None:
        self.documents.open(Opened(uri=uri, language="python", text=text))
        self.learning.opened(self.at(0, uri))

    def at(self, offset: int, uri: str = URI) -> Snapshot:
        snapshot = self.documents.snapshot(uri, offset)
        assert snapshot is not None
        return snapshot

    def text(self, uri: str = URI) -> str:
        return self.at(0, uri).text

    def show(self, text: str, at: int, *, source: Source = "model", uri: str = URI) -> str:
        self._ids += 1
        shown = Shown(id=str(self._ids), start=at, end=at, text=text, source=source)
        self.learning.shown(self.at(at, uri), [shown], 100.0 * self._ids)
        self.now += 1
        return shown.id

    def replace(self, start: int, end: int, text: str, uri: str = URI) -> None:
        document = self.documents.get(uri)
        assert document is not None
        edit = document.replace(start, end, text)
        self.learning.changed(self.at(start + len(text), uri), (edit,))

    def close(self, uri: str = URI) -> None:
        self.documents.close(uri)
        self.learning.closed(uri)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "completions.sqlite"


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def rows(path: Path, columns: str, table: str = "suggestions") -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY at, rowid").fetchall()
    finally:
        connection.close()


def test_outcomes_are_written_as_counts(path: Path) -> None:
    async def work() -> None:
        session = Session(path)
        session.open("")
        session.show("return a\n", 0)
        session.replace(0, 0, "return a\n")
        session.show("raise b\n", 9, source="prefetch")
        session.replace(9, 9, "x")
        session.show("yz", 10, source="memory")
        session.close()
        await session.learning.close()

    run(work)
    assert rows(path, "outcome, source, language, chars, lines, accepted_chars") == [
        ("accepted", "model", "python", 9, 1, 9),
        ("rejected", "prefetch", "python", 8, 1, 0),
        ("rejected", "memory", "python", 2, 1, 0),
    ]
    assert rows(path, "source, latency_ms", "answers") == [
        ("model", 100.0),
        ("prefetch", 200.0),
        ("memory", 300.0),
    ]


def test_typing_through_is_one_suggestion_however_often_it_is_sent(path: Path) -> None:
    async def work() -> None:
        session = Session(path)
        session.open("")
        session.show("return a", 0)
        for at, key in enumerate("ret"):
            session.replace(at, at, key)
            session.show("return a"[at + 1 :], at + 1, source="memory")
        session.replace(3, 3, "urn a")
        await session.learning.close()

    run(work)
    assert rows(path, "outcome, source, typed_chars, accepted_chars") == [
        ("accepted", "model", 3, 5)
    ]
    assert len(rows(path, "*", "answers")) == 4


def test_another_suggestion_in_its_place_ends_the_first(path: Path) -> None:
    async def work() -> None:
        session = Session(path)
        session.open("")
        session.show("first()", 0)
        session.show("second()", 0)
        session.replace(0, 0, "second()")
        await session.learning.close()

    run(work)
    assert rows(path, "outcome, chars") == [("rejected", 7), ("accepted", 8)]


def kept(path: Path) -> list[tuple[Any, ...]]:
    return rows(path, ", ".join(f"kept_{seconds}" for seconds in LATER_S))


def accepted_session(path: Path, text: str = "return a + b") -> Session:
    session = Session(path)
    session.open("# head\n\n# tail\n")
    session.show(text, 7)
    session.replace(7, 7, text)
    return session


def test_what_is_kept_is_looked_at_three_times(path: Path) -> None:
    async def work() -> None:
        session = accepted_session(path)
        session.now += 31
        session.replace(0, 0, "# more above\n")  # looks before it changes anything
        start = session.text().index("return")
        session.replace(start + 7, start + 8, "c")
        session.now += 100
        session.learning.look_again()
        session.replace(start, start + len("return c + b"), "")
        session.now += 600
        session.learning.look_again()
        await session.learning.close()

    run(work)
    ((first, second, third),) = kept(path)
    assert first == 1.0
    assert second == pytest.approx(11 / 12)
    assert third < 0.5


def test_a_text_that_moved_is_still_found(path: Path) -> None:
    async def work() -> None:
        session = accepted_session(path)
        for _ in range(50):
            session.replace(0, 0, "# a line above\n" * 10)
        session.now += 31
        await session.learning.close()

    run(work)
    assert kept(path) == [(1.0, None, None)]


def test_what_was_not_due_when_the_document_closed_is_not_known(path: Path) -> None:
    async def work() -> None:
        session = accepted_session(path)
        session.now += 121
        session.close()
        session.open("")
        session.now += 600
        await session.learning.close()

    run(work)
    assert kept(path) == [(1.0, 1.0, None)]


def test_reformatting_the_whole_document_loses_nothing(path: Path) -> None:
    async def work() -> None:
        session = accepted_session(path)
        text = session.text()
        session.replace(0, len(text), "\n".join(f"    {line}" for line in text.split("\n")))
        session.now += 31
        await session.learning.close()

    run(work)
    assert kept(path) == [(1.0, None, None)]


def test_a_timer_looks_again_by_itself(path: Path) -> None:
    async def work() -> None:
        session = accepted_session(path)
        timer = session.learning._timer
        assert timer is not None
        wait = timer.when() - asyncio.get_running_loop().time()
        assert wait == pytest.approx(LATER_S[0], abs=2)
        session.now += LATER_S[0]
        session.learning.look_again()
        again = session.learning._timer
        assert again is not None
        assert again.when() - timer.when() == pytest.approx(LATER_S[1] - 2 * LATER_S[0], abs=2)
        await session.learning.close()
        assert again.cancelled()

    run(work)


def test_a_client_that_says_so_is_believed(path: Path) -> None:
    async def work() -> None:
        session = Session(path)
        session.open("")
        before = session.show("x", 0)
        session.learning.accepted(before)
        session.replace(0, 0, "x")
        after = session.show("yes()", 1)
        session.replace(0, 0, "import yes\n")
        session.learning.accepted(after)
        session.learning.accepted("unknown")
        await session.learning.close()

    run(work)
    assert rows(path, "outcome, accepted_chars") == [("accepted", 1), ("accepted", 5)]


def test_requests_are_counted_by_route_and_cancels_by_tokens(path: Path) -> None:
    async def work() -> None:
        session = Session(path)
        session.learning.nothing(40.0)
        session.learning.cancelled(3)
        session.learning.decoded(
            [
                round_of(drafted=4, accepted=3),
                round_of(drafted=4, accepted=1),
                round_of(drafted=0, accepted=0),
            ]
        )
        session.learning.decoded([])
        await session.learning.close()

    run(work)
    assert rows(path, "source, latency_ms", "answers") == [(None, 40.0)]
    assert rows(path, "tokens_after", "cancels") == [(3,)]
    assert rows(path, "route, rounds, drafted, tested, accepted", "decoded") == [
        ("copy", 2, 8, 6, 4),
        ("plain", 1, 0, 0, 0),
    ]


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


@pytest.mark.parametrize("log_code", [False, True])
def test_no_code_and_no_path_is_written_unless_that_was_asked_for(
    path: Path, log_code: bool
) -> None:
    async def work() -> None:
        session = Session(path, log_code=log_code)
        session.open("# head\n")
        session.show(SECRET_CODE, 7)
        session.replace(7, 7, SECRET_CODE)
        session.now += 700
        session.learning.look_again()
        await session.learning.close()

    run(work)
    written = everything_in(path.parent)
    assert (b"launch_codes" in written) == log_code
    assert b"a.py" not in written
    assert b"head" not in written


# The file


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    old = os.umask(0)
    try:
        open_store(path).close()
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    open_store(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_opened_before_there_is_something_to_count(path: Path) -> None:
    run(Session(path).learning.close)
    assert not path.exists()


def test_old_rows_go(path: Path) -> None:
    connection = open_store(path)
    connection.execute("INSERT INTO cancels VALUES (?, 1)", (1.0,))
    connection.close()
    assert KEPT_DAYS < 20_000
    open_store(path).close()
    assert rows(path, "*", "cancels") == []


def test_a_damaged_file_is_kept_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, whatever it is called" * 100)

    async def work() -> None:
        session = Session(path)
        session.learning.cancelled(1)
        await session.learning.close()

    run(work)
    assert rows(path, "tokens_after", "cancels") == [(1,)]
    (aside,) = path.parent.glob("*.damaged-*")
    assert aside.read_bytes().startswith(b"this is no database")


def test_a_newer_file_and_a_folder_that_cannot_be_are_left_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connection = open_store(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    (path.parent / "file").write_text("")

    async def work() -> None:
        for place in (path, path.parent / "file" / "completions.sqlite"):
            session = Session(place)
            for _ in range(3):
                session.learning.cancelled(1)
            await session.learning.close()

    run(work)
    assert path.read_bytes() == before
    assert len([one for one in caplog.records if "can't be counted" in one.message]) == 2


WRITER = """
import asyncio, sys
from pathlib import Path
from lsp.learning_store import LearningStore

async def main():
    store = LearningStore(Path(sys.argv[1]))
    for n in range(100):
        store.add("cancels", {"at": 4e9, "tokens_after": n})
    await store.close()

asyncio.run(main())
"""


def test_several_editors_write_at_once(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    writers = [subprocess.Popen(command, env=environment, cwd=root) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert len(rows(path, "*", "cancels")) == 400


def test_reading_makes_no_file(path: Path) -> None:
    assert open_to_read(path) is None
    assert not path.parent.exists()
    open_store(path).close()
    connection = open_to_read(path)
    assert connection is not None
    with pytest.raises(sqlite3.OperationalError):
        connection.execute("DELETE FROM cancels")
    assert {connection.execute(f"SELECT count(*) FROM {one}").fetchone() for one in TABLES} == {
        (0,)
    }
    connection.close()


def test_a_closed_store_takes_nothing_more(path: Path) -> None:
    async def work() -> None:
        store = LearningStore(path)
        await store.close()
        store.add("cancels", {"at": 1.0, "tokens_after": 1})
        await store.close()

    run(work)
    assert not path.exists()
