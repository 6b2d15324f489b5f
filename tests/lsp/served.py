"""A real server process with what a test needs instead of the daemon: `python -m` this module.

`echo` answers each wish with a digest of what it saw: the document's text and the place in it.
`complete` has the real completer, over an engine that answers each prompt with a digest of it. Both
begin by naming, on stderr, the heavy modules that are loaded when `initialize` is answered.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING

from app.editor import end, own_output
from lsp.session import serve

if TYPE_CHECKING:
    from engine.protocol import Event, GenerateRequest
    from lsp.complete import Suggestion, Wanted
    from lsp.documents import Documents
    from lsp.server import Host, Parts

HEAVY = ("torch", "transformers", "httpx", "tree_sitter", "watchdog", "sqlite3", "pygls")


def digest(text: str, offset: int) -> str:
    """What `echo` answers for a document looked at from a place."""
    return hashlib.sha256(f"{offset}:{text}".encode()).hexdigest()[:12]


def prompt_digest(before: str, after: str) -> str:
    """What the engine of `complete` answers: a word that nobody types, and little is trimmed of."""
    around = f"{before}|{after[:40]}".replace("\r\n", "\n")
    return "jq" + hashlib.sha256(around.encode()).hexdigest()[:10]


class Echo:
    """A completer that shows what it was asked, and drops it once the document has moved on."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def complete(self, wanted: Wanted) -> list[Suggestion] | None:
        from lsp.complete import Suggestion

        seen = wanted.snapshot
        document = self._documents.get(seen.uri)
        if document is None or document.text != seen.text:
            return None
        text = digest(seen.text, seen.offset)
        return [
            Suggestion(start=seen.offset, end=seen.offset, text=text, source="model", id="echo")
        ]


def build_echo(host: Host) -> Parts:
    """The parts of `echo`; it prints where careless libraries would."""
    from lsp.server import Parts
    from lsp.tally import TalliedEngine
    from tests.fakes import ScriptedEngine, answer_script

    print("a stray line on standard output")
    os.write(1, b"and one that native code wrote\n")
    engine = TalliedEngine(ScriptedEngine(answer_script("a b")))
    return Parts(
        engine=engine,
        completer=Echo(host.documents),
        accepted=lambda one: print("accepted", one),
    )


def build_complete(host: Host) -> Parts:
    """The parts of `complete`."""
    from engine.protocol import FillPrompt
    from lsp.complete import Completer
    from lsp.server import Parts
    from lsp.tally import TalliedEngine
    from tests.fakes import ScriptedEngine, answer_script

    def script(request: GenerateRequest) -> list[Event]:
        prompt = request.prompt
        assert isinstance(prompt, FillPrompt)
        return answer_script(prompt_digest(prompt.prefix, prompt.suffix))

    engine = TalliedEngine(ScriptedEngine(script))
    completer = Completer(engine, documents=host.documents, settings=host.settings)
    return Parts(engine=engine, completer=completer, listeners=(completer,), close=completer.close)


if __name__ == "__main__":
    output = own_output()
    build = {"echo": build_echo, "complete": build_complete}[sys.argv[1]]
    print("loaded:", *[name for name in HEAVY if name in sys.modules], flush=True)
    end(serve(sys.stdin.buffer, output, build, "0"))
