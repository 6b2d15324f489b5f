"""Related text from the workspace: what other files hold that helps at the cursor.

Owns what is open, when a choice is looked for anew, and the promise that nothing here holds up the
event loop: reading and comparing happen in one thread, and who asks waits for it only a moment.
Files on disk are not looked at before the first question.

Invariant: while one types in one place the choice stays, so that the start of the prompt does; no
text of a file that `allowed` refuses is ever shown or read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from engine.protocol import Snippet
from lsp.document import Edit, Snapshot
from lsp.finder import Finder, OpenText, Question
from lsp.path_rules import PathRules
from lsp.related import Choice, cost
from lsp.settings import EditorSettings

if TYPE_CHECKING:
    from lsp.file_watch import Watches

REGION_LINES = 30
"""So near to where a choice was made, it stays."""
MATERIAL = 200
"""Characters that have to change in a document before others look at it again."""
WAIT_S = 0.08
"""Longest that a question waits for a choice; what comes later serves the next one."""
LEAST_BUDGET = 200
MOST_REMEMBERED = 64

_Q = TypeVar("_Q")
_A = TypeVar("_A")

log = logging.getLogger(__name__)


class _Made(Struct, frozen=True, kw_only=True):
    """A choice and what it was made for."""

    choice: Choice
    line: int
    rules: PathRules
    others: int
    """Material changes elsewhere until then."""


class Workspace:
    """The related text of one session. Everything is called on the event loop."""

    def __init__(
        self,
        settings: Callable[[], EditorSettings],
        *,
        watch: Callable[[], Watches] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._finder = Finder(watch)
        self._thread: ThreadPoolExecutor | None = None
        self._folders: tuple[Path, ...] = ()
        self._rules = PathRules()
        self._open: dict[str, tuple[Snapshot, float]] = {}
        self._made: dict[str, _Made] = {}
        self._finding: dict[str, asyncio.Task[Choice]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._last: Snapshot | None = None
        self._last_budget = 0
        self._changes = 0
        self._own: dict[str, int] = {}
        self._uncounted: dict[str, int] = {}
        self._verdicts: dict[Path, bool] = {}
        self._closed = False

    def opened(self, snapshot: Snapshot) -> None:
        """A document was opened."""
        self._open[snapshot.uri] = (snapshot, self._clock())
        self._changed_materially(snapshot.uri)
        if snapshot.path is not None:
            self._verdicts.pop(snapshot.path, None)

    def changed(self, snapshot: Snapshot, edits: tuple[Edit, ...]) -> None:
        """A document became `snapshot`."""
        uri = snapshot.uri
        self._open[uri] = (snapshot, self._clock())
        changed = sum(max(len(edit.text), edit.end - edit.start) for edit in edits)
        self._uncounted[uri] = self._uncounted.get(uri, 0) + changed
        if self._uncounted[uri] >= MATERIAL:
            self._changed_materially(uri)

    def closed(self, uri: str) -> None:
        """A document was closed."""
        self._open.pop(uri, None)
        self._made.pop(uri, None)
        self._uncounted.pop(uri, None)
        self._own.pop(uri, None)
        self._changes += 1

    def folders_changed(self, folders: tuple[Path, ...]) -> None:
        """The workspace folders are now these."""
        self._folders = folders
        self._made.clear()
        self._verdicts.clear()

    def allowed(self, path: Path | None) -> bool:
        """Whether a file may be completed in and read: no secret, not left out by the settings.
        What was never saved may."""
        if path is None:
            return True
        rules = self._rules_now()
        verdict = self._verdicts.get(path)
        if verdict is None:
            if len(self._verdicts) >= MOST_REMEMBERED:
                self._verdicts.clear()
            verdict = self._verdicts[path] = rules.refused(path) is None
        return verdict

    async def related(self, snapshot: Snapshot, budget_chars: int) -> tuple[Snippet, ...]:
        """What to show besides the document itself, in `budget_chars` characters, paths included;
        the most related last. Waits for `WAIT_S` at most, and not at all while one place lasts."""
        wanted = self._settings().snippets and budget_chars >= LEAST_BUDGET
        if self._closed or not wanted or not self.allowed(snapshot.path):
            return ()
        rules = self._rules_now()
        line = snapshot.text.count("\r" if snapshot.newline == "\r" else "\n", 0, snapshot.offset)
        made = self._made.get(snapshot.uri)
        if made is not None and made.rules is not rules:
            made = None
        self._last, self._last_budget = snapshot, budget_chars
        stays = made is not None and abs(made.line - line) <= REGION_LINES
        if made is None or not stays or made.others != self._others(snapshot.uri):
            finding = self._find(snapshot, line, budget_chars)
            if not stays:
                await asyncio.wait({finding}, timeout=WAIT_S)
                made = self._made.get(snapshot.uri)
        self._refresh()
        if made is None or made.rules is not self._rules_now():
            return ()
        return _fitting(made.choice, budget_chars)

    async def settled(self) -> None:
        """Wait until all that was begun is done; for whoever measures or tests."""
        while pending := [*self._finding.values(), *filter(None, (self._refreshing,))]:
            await asyncio.wait(pending)
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End the thread and the watch. Nothing is shown after that."""
        self._closed = True
        self._finder.stop()
        for task in (*self._finding.values(), *filter(None, (self._refreshing,))):
            task.cancel()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._finder.close)
            thread.shutdown(cancel_futures=True)

    def _rules_now(self) -> PathRules:
        globs = self._settings().ignore
        if self._rules.globs != globs or self._rules.folders != self._folders:
            self._rules = PathRules(self._folders, globs)
            self._verdicts.clear()
        return self._rules

    def _changed_materially(self, uri: str) -> None:
        self._uncounted[uri] = 0
        self._changes += 1
        self._own[uri] = self._own.get(uri, 0) + 1

    def _others(self, uri: str) -> int:
        """Material changes in other documents and in files."""
        return self._changes - self._own.get(uri, 0)

    def _find(self, snapshot: Snapshot, line: int, budget: int) -> asyncio.Task[Choice]:
        """Look for a choice in the thread; one search at a time for each document."""
        uri = snapshot.uri
        running = self._finding.get(uri)
        if running is not None:
            return running
        now = self._clock()
        made = self._made.get(uri)
        question = Question(
            snapshot=snapshot,
            line=line,
            budget=budget,
            open=tuple(
                OpenText(snapshot=one, age_s=now - since)
                for other, (one, since) in self._open.items()
                if other != uri
            ),
            rules=self._rules,
            before=made.choice if made is not None and made.rules is self._rules else None,
        )
        others = self._others(uri)

        async def run() -> Choice:
            try:
                choice = await self._in_thread(self._finder.find, question)
                self._remember(
                    uri, _Made(choice=choice, line=line, rules=question.rules, others=others)
                )
                return choice
            except Exception:
                log.exception("no related text could be looked for")
                return Choice()
            finally:
                del self._finding[uri]

        task = self._finding[uri] = asyncio.get_running_loop().create_task(run())
        return task

    def _remember(self, uri: str, made: _Made) -> None:
        self._made.pop(uri, None)
        self._made[uri] = made
        while len(self._made) > MOST_REMEMBERED:
            del self._made[next(iter(self._made))]

    def _refresh(self) -> None:
        """See to the index of files where that is due, and then to the last question again."""
        if self._refreshing is not None or not self._finder.is_due or not self._folders:
            return

        async def run() -> None:
            try:
                if await self._in_thread(self._finder.refresh, self._folders):
                    self._changes += 1
                    self._ask_again()
            except Exception:
                log.exception("the workspace could not be looked at")
            finally:
                self._refreshing = None

        self._refreshing = asyncio.get_running_loop().create_task(run())

    def _ask_again(self) -> None:
        last = self._last
        made = self._made.get(last.uri) if last is not None else None
        if last is not None and made is not None and not self._closed:
            current = self._open.get(last.uri, (last, 0.0))[0]
            self._find(current, made.line, self._last_budget)

    async def _in_thread(self, call: Callable[[_Q], _A], argument: _Q) -> _A:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="workspace")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, argument)


def _fitting(choice: Choice, budget: int) -> tuple[Snippet, ...]:
    """As much of a choice as fits, the best of it."""
    taken = choice.taken
    while taken and cost(taken) > budget:
        taken = taken[1:]
    return Choice(taken=taken).snippets
