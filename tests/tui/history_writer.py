"""Processes that write into a conversation store, to be killed by a test.

`serve` answers each line on stdin, `STORE LOG TURNS SEED; …`, by forking a process for each of them
and telling their ids; once they are gone it tells their exit codes. Forking makes a writer in
milliseconds, so that fifty of them can be killed. What a writer has brought to an end it says in
LOG, a line of JSON each, written by one unbuffered call.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from tui.history import History


def text_of(message: int, length: int) -> str:
    """The first `length` characters of the one text that this message is ever given."""
    unit = f"<{message} wörd 世界> "
    return (unit * (length // len(unit) + 1))[:length]


class Log:
    """Says what is done; a line is there whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(self, **told: Any) -> None:
        os.write(self._descriptor, json.dumps(told).encode() + b"\n")


def write(history: History, log: Log, turns: int, chance: random.Random) -> None:
    """Ask, answer in pieces, end the answer; now and then branch, rename or delete."""
    mine: list[int] = []
    for turn in range(turns):
        if not mine or chance.random() < 0.4:
            mine.append(history.create("system").id)
        conversation = chance.choice(mine)
        leaf = history.leaf(conversation)
        if leaf is not None and chance.random() < 0.3:
            leaf = chance.choice(history.thread(leaf)).id
        asked = history.add(conversation, leaf, "user", f"question {turn}")
        log.say(message=asked.id, conversation=conversation, question=f"question {turn}")
        answer(history, log, asked.id, chance)
        if len(mine) > 3:
            gone = mine.pop(0)
            log.say(deleting=gone)
            history.delete(gone)


def answer(history: History, log: Log, question: int, chance: random.Random) -> None:
    """One answer, written piece by piece; every piece is told once it is kept."""
    conversation = history.message(question).conversation
    message = history.add(conversation, question, "assistant", "", state="partial").id
    log.say(message=message, conversation=conversation, length=0)
    length = 0
    for _ in range(chance.randrange(12)):
        length += chance.choice((1, 7, 40, 3000))
        history.journal(message, text_of(message, length), b"k" * length)
        log.say(message=message, conversation=conversation, length=length)
    history.finish(message, text_of(message, length), "whole", None, b"k" * length)
    log.say(message=message, conversation=conversation, length=length, whole=True)


def work(store: str, log: str, turns: str, seed: str) -> None:
    history = History.open(Path(store))
    write(history, Log(Path(log)), int(turns), random.Random(int(seed)))
    history.close()


def serve() -> None:
    for line in sys.stdin:
        pids = [_forked(work_of.split()) for work_of in line.split(";")]
        print(*pids, flush=True)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(*codes, flush=True)


def _forked(arguments: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work(*arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    serve()
