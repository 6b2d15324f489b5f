"""The hot path over a scripted engine: what is shown, what is asked, and what is left undone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from engine.protocol import EngineStatus, Event, Failed, FillPrompt, Held, Paused, Snippet
from lsp.complete import Selected, Suggestion
from lsp.document import Document, Snapshot
from lsp.placing import begun_word
from lsp.prefetch import REST_S
from lsp.settings import EditorSettings
from tests.fakes import STATUS, answer_script
from tests.lsp.completing import Engine, Session, Snippets, on_a_loop

LINE = "def add(a, b):\n    total = ▮\n    return total\n"


def only(suggestions: Sequence[Suggestion] | None) -> Suggestion:
    assert suggestions is not None
    (one,) = suggestions
    return one


def asked_for(session: Session) -> list[FillPrompt]:
    """The prompts that somebody waited for."""
    requests = [one for one in session.engine.requests if one.priority == "fill"]
    return [one.prompt for one in requests if isinstance(one.prompt, FillPrompt)]


@on_a_loop
async def test_the_model_is_asked_and_its_line_is_shown_at_the_cursor() -> None:
    session = Session(Engine("a + b\n    other = 1"), LINE)
    one = only(await session.ask())
    assert (one.text, one.source) == ("a + b", "model")
    assert one.start == one.end == session.cursor
    (request,) = session.engine.requests[:1]
    assert (request.priority, request.client, request.conversation) == (
        "fill",
        "editor",
        session.uri,
    )
    assert isinstance(request.prompt, FillPrompt)
    assert request.prompt.prefix == "def add(a, b):\n    total = "
    assert request.prompt.suffix == "\n    return total\n"
    assert request.sampling.temperature == 0


@on_a_loop
async def test_an_answer_is_typed_through_without_the_engine() -> None:
    session = Session(Engine(lambda prompt: "a + b" if prompt.prefix.endswith("= ") else ""), LINE)
    await session.ask()
    await session.settle()
    asked = len(session.engine.requests)
    for rest in (" + b", "+ b", " b", "b"):
        session.type("a + b"[-len(rest) - 1])
        one = only(await session.ask())
        assert (one.text, one.source) == (rest, "memory")
        assert one.start == one.end == session.cursor
        await session.settle()
    assert len(session.engine.requests) == asked


@on_a_loop
async def test_after_an_accept_the_next_answer_is_there_already() -> None:
    def say(prompt: FillPrompt) -> str:
        return (
            "a + b" if prompt.prefix.endswith("= ") else ".real" if "+ b" in prompt.prefix else ""
        )

    session = Session(Engine(say), LINE)
    session.accept(only(await session.ask()))
    await session.settle()
    # It was being computed while the first one was shown; the accept has not stopped it.
    one = only(await session.ask())
    assert (one.text, one.source) == (".real", "prefetch")
    assert one.start == session.cursor


@on_a_loop
async def test_after_a_finished_line_the_line_below_is_there_already() -> None:
    def say(prompt: FillPrompt) -> str:
        if prompt.prefix.endswith("\n    "):
            return "print(total)"
        return "a + b" if prompt.prefix.endswith("= ") else ""

    session = Session(Engine(say), LINE)
    session.accept(only(await session.ask()))
    assert await session.ask() == []
    await asyncio.sleep(REST_S)
    await session.settle()
    session.replace(session.cursor, session.cursor, "\n    ")
    one = only(await session.ask())
    assert (one.text, one.source) == ("print(total)", "prefetch")


@on_a_loop
async def test_a_guess_is_left_as_soon_as_the_document_goes_another_way() -> None:
    engine = Engine("a + b", hold_after=None)
    session = Session(engine, LINE)
    await session.ask()
    engine._hold_after = 1
    await engine.holding.wait()
    session.type("a")
    await session.settle()
    assert engine.cancelled == []
    session.type("x")
    await session.settle()
    assert engine.cancelled == [engine.requests[-1].id]


@on_a_loop
async def test_half_a_word_is_left_to_the_model_to_write_whole() -> None:
    def say(prompt: FillPrompt) -> str:
        return "enumerate (rows):" if prompt.prefix.endswith("in ") else ":"

    session = Session(Engine(say), "for row in enum▮\n    print(row)\n")
    assert await session.texts() == ["erate (rows):"]
    assert session.engine.prompts[0].prefix == "for row in "


@on_a_loop
async def test_a_model_with_another_word_in_mind_is_asked_for_the_text_as_it_stands() -> None:
    def say(prompt: FillPrompt) -> str:
        return "numbers and much more" if prompt.prefix.endswith("(") else "ted(numbers)"

    session = Session(Engine(say), "numbers = [3, 1]\nprint(so▮\n")
    session.type("r")
    assert await session.texts() == ["ted(numbers)"]
    prefixes = [prompt.prefix.splitlines()[-1] for prompt in session.engine.prompts[:2]]
    assert prefixes == ["print(", "print(sor"]
    assert session.engine.cancelled == [session.engine.requests[0].id]
    session.delete()
    session.type("x")
    await session.ask()
    asked = [prompt.prefix.splitlines()[-1] for prompt in session.engine.prompts]
    assert asked.count("print(") == 1, "what it has in mind is known by now"


@on_a_loop
async def test_a_cancelled_wish_leaves_word_of_the_other_word() -> None:
    engine = Engine(lambda prompt: "numbers" if prompt.prefix.endswith("(") else "ted(numbers)")
    session = Session(engine, "print(sor▮\n")
    engine._hold_after = 2
    wish = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    wish.cancel()
    await session.settle()
    engine._hold_after = None
    session.type("x")
    await session.ask()
    asked = [prompt.prefix.splitlines()[-1] for prompt in engine.prompts]
    assert asked[:3] == ["print(", "print(sor", "print(sorx"]


@pytest.mark.parametrize("text", ["x = 12▮\n", "conf▮ig = 1\n", "w" * 40 + "▮\n", "a.▮\n", "▮"])
def test_where_no_word_was_begun_the_text_is_asked_for_as_it_stands(text: str) -> None:
    before, _, after = text.partition("▮")
    document = Document("file:///a.py", before + after)
    assert begun_word(document.snapshot(len(before))) == ""


@on_a_loop
async def test_a_guess_that_others_hold_up_is_asked_for_in_earnest() -> None:
    def say(prompt: FillPrompt) -> str | list[Event]:
        if prompt.prefix.endswith("= "):
            return "a + b"
        script = answer_script(".real")
        guessed = engine.requests[-1].priority == "idle"
        return [script[0], Paused(by="chat"), *script[1:]] if guessed else script

    engine = Engine(say)
    session = Session(engine, LINE)
    suggestion = only(await session.ask())
    engine._hold_after = 2
    await engine.holding.wait()
    engine._hold_after = None
    session.accept(suggestion)
    one = only(await session.ask())
    assert (one.text, one.source) == (".real", "model")
    assert [request.priority for request in engine.requests[:3]] == ["fill", "idle", "fill"]
    assert engine.cancelled == [engine.requests[1].id]


@on_a_loop
async def test_nothing_is_guessed_for_a_file_that_is_refused() -> None:
    session = Session(Engine("hunter2"), "PASSWORD=1▮\n", uri="file:///project/.env")
    await session.ask()
    await asyncio.sleep(REST_S)
    await session.settle()
    assert session.engine.requests == []


@on_a_loop
async def test_nothing_is_guessed_while_the_engine_is_busy() -> None:
    busy = EngineStatus(model="scripted", running=("chat",))
    session = Session(Engine("a + b", status=busy), LINE)
    await session.ask()
    await session.settle()
    assert len(session.engine.requests) == 1


@on_a_loop
async def test_a_newer_wish_takes_the_place_of_the_older_one() -> None:
    engine = Engine("a + b", hold_after=1)
    session = Session(engine, LINE)
    older = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    engine._hold_after = None
    newer = asyncio.ensure_future(session.ask())
    assert await older is None
    assert only(await newer).text == "a + b"
    assert engine.cancelled[0] == engine.requests[0].id


@on_a_loop
async def test_a_newer_wish_goes_on_from_what_was_written_for_the_older_one() -> None:
    engine = Engine(lambda p: "total = a + b".removeprefix(p.prefix[19:]), hold_after=5)
    session = Session(engine, LINE)
    older = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    engine._hold_after = None
    session.type("a")
    assert await session.texts() == [" + b"]
    assert await older is None
    assert engine.prompts[1].prefix.endswith("total = a + ")


@on_a_loop
async def test_a_cancelled_wish_reaches_the_engine_and_what_it_had_is_not_lost() -> None:
    engine = Engine(lambda p: "total = a + b".removeprefix(p.prefix[19:]), hold_after=5)
    session = Session(engine, LINE)
    task = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.cancelled == [engine.requests[0].id]
    engine._hold_after = None
    session.type("a")
    assert await session.texts() == [" + b"]
    # "a + " was written before; "a" of it was typed since.
    assert engine.prompts[1].prefix.endswith("total = a + ")


class Gated(Engine):
    """Gives its first event only once it is let go."""

    def __init__(self, say: str) -> None:
        super().__init__(say)
        self.gate = asyncio.Event()

    async def status(self) -> EngineStatus:
        await self.gate.wait()
        return STATUS


@pytest.mark.parametrize(
    ("typed", "left"), [("", "a + b"), ("a ", "+ b"), ("a + b", None), ("b", None)]
)
@on_a_loop
async def test_what_comes_late_fits_the_document_as_it_is_or_is_dropped(
    typed: str, left: str | None
) -> None:
    engine = Gated("a + b")
    session = Session(engine, LINE)
    task = asyncio.ensure_future(session.ask())
    await session.settle()
    session.type(typed)
    engine.gate.set()
    suggestions = await task
    assert suggestions is not None
    assert [one.text for one in suggestions] == ([left] if left else [])
    for one in suggestions:
        assert one.start == one.end == session.cursor


@on_a_loop
async def test_a_change_elsewhere_ends_what_is_under_way() -> None:
    engine = Engine("a + b", hold_after=1)
    session = Session(engine, LINE)
    task = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    session.replace(0, 0, "# one more line\n")
    assert await task == []
    assert engine.cancelled == [engine.requests[0].id]


@on_a_loop
async def test_a_document_that_is_closed_ends_what_is_under_way() -> None:
    engine = Engine("a + b", hold_after=1)
    session = Session(engine, LINE)
    task = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    session.documents.close(session.uri)
    session.completer.closed(session.uri)
    assert await task == []
    assert engine.cancelled == [engine.requests[0].id]


@on_a_loop
async def test_an_explicit_wish_has_up_to_three_answers_that_differ() -> None:
    says = iter(["a + b", "a + b", "b + a", "a + b ", "sum((a, b))"])
    session = Session(Engine(lambda _: next(says)), LINE)
    assert await session.texts(explicit=True) == ["a + b", "b + a", "sum((a, b))"]
    temperatures = [one.sampling.temperature for one in session.engine.requests]
    assert temperatures[0] == 0
    assert all(temperatures[1:])
    seeds = [one.sampling.seed for one in session.engine.requests]
    assert len(set(seeds)) == len(seeds)
    # Asked again at the same place, they are all known.
    assert await session.texts(explicit=True) == ["a + b", "b + a", "sum((a, b))"]
    assert len(session.engine.requests) == 5
    # And one of them goes on when it is typed.
    session.type("s")
    assert (await session.texts())[0] == "um((a, b))"


@on_a_loop
async def test_an_explicit_wish_reads_on_behind_the_cursor_and_the_next_key_does_not() -> None:
    rest = "".join(f"    later_{number} = {number}\n" for number in range(60))
    session = Session(Engine("a + b"), f"def f(a, b):\n    total = ▮\n{rest}")
    await session.ask()
    await session.settle()
    await session.ask(explicit=True)
    session.type("q")
    await session.ask()
    asked = [one for one in session.engine.requests if one.priority == "fill"]
    lengths = [len(one.prompt.suffix) for one in asked if isinstance(one.prompt, FillPrompt)]
    assert lengths[0] == lengths[-1]
    assert all(one > 2 * lengths[0] for one in lengths[1:-1])
    assert len(lengths) > 2


@on_a_loop
async def test_what_is_shown_stays_first_when_more_is_asked_for() -> None:
    says = iter(["a + b", "", "b + a", "b - a", "b", "b * a"])
    session = Session(Engine(lambda _: next(says)), LINE)
    assert await session.texts() == ["a + b"]
    await session.settle()
    assert (await session.texts(explicit=True))[0] == "a + b"


@on_a_loop
async def test_an_entry_of_the_popup_is_gone_on_with() -> None:
    session = Session(Engine(lambda prompt: "(total)"), "def f(total):\n    pri▮\n")
    start = session.cursor - 3
    chosen = Selected(start=start, end=session.cursor, text="print")
    one = only(await session.completer.complete(session.wanted(selected=chosen)))
    assert (one.start, one.end, one.text) == (start, session.cursor, "print(total)")
    assert session.engine.requests[0].prompt.prefix.endswith("    print")  # type: ignore[union-attr]


@pytest.mark.parametrize("path", [".env", "id_rsa", "server.pem", ".vscode/.env.local"])
@on_a_loop
async def test_a_file_of_secrets_is_never_completed_in(path: str) -> None:
    session = Session(Engine("hunter2"), "PASSWORD=▮\n", uri=f"file:///project/{path}")
    assert await session.ask() == []
    assert await session.ask(explicit=True) == []
    assert session.engine.requests == []


@on_a_loop
async def test_a_file_that_the_workspace_refuses_is_left_alone() -> None:
    session = Session(Engine("x"), LINE, snippets=Snippets(refused="a.py"))
    assert await session.ask() == []
    await session.settle()
    assert session.engine.requests == []


@on_a_loop
async def test_snippets_go_along_and_stay_while_one_types() -> None:
    snippets = Snippets(Snippet(path="b.py", text="def mul(a, b): ..."))
    session = Session(Engine("zzz"), LINE, snippets=snippets)
    for character in "abcd":
        session.type(character)
        await session.ask()
    assert {one.snippets for one in session.engine.prompts} == {snippets.given}
    assert snippets.asked == 1
    starts = {prompt.prefix[:20] for prompt in session.engine.prompts}
    assert len(starts) == 1


@on_a_loop
async def test_settings_that_leave_files_out_hold_for_the_next_prompt() -> None:
    snippets = Snippets(Snippet(path="b.py", text="def mul(a, b): ..."))
    session = Session(Engine("zzz"), LINE, snippets=snippets)
    session.type("a")
    await session.ask()
    session.settings, snippets.given = EditorSettings(ignore=("b.py",)), ()
    session.type("b")
    await session.ask()
    first, *_, last = asked_for(session)
    assert (bool(first.snippets), last.snippets) == (True, ())


@on_a_loop
async def test_a_wish_given_up_while_snippets_are_looked_for_leaves_the_window_where_it_was() -> (
    None
):
    class Slow(Snippets):
        never = False

        async def related(self, snapshot: Snapshot, budget_chars: int) -> tuple[Snippet, ...]:
            await (asyncio.Event().wait() if self.never else asyncio.sleep(0))
            return self.given

    body = "".join(f"    value_{n} = {n}\n" for n in range(400))
    snippets = Slow()
    session = Session(Engine("zzz"), f"def f():\n{body}    total = ▮\n", snippets=snippets)
    session.type("a")
    await session.ask()
    for n in range(20):
        session.type(f" + value_{n}")
    snippets.never = True
    given_up = asyncio.ensure_future(session.ask())
    await session.settle()
    given_up.cancel()
    await asyncio.wait({given_up})
    snippets.never = False
    session.type(" ")
    await session.ask()
    first, *_, last = asked_for(session)
    assert last.prefix[:200] == first.prefix[:200]


@on_a_loop
async def test_code_that_would_break_the_syntax_is_not_shown() -> None:
    session = Session(Engine("))) ]"), LINE)
    assert await session.ask() == []


@pytest.mark.parametrize("state", ["loading", "failed", "asleep"])
@on_a_loop
async def test_an_engine_that_is_not_ready_is_not_waited_for(state: str) -> None:
    status = EngineStatus(model="scripted", state=state)  # type: ignore[arg-type]
    session = Session(Engine("a + b", status=status), LINE)
    assert await session.ask() == []
    assert session.engine.requests == []


@on_a_loop
async def test_a_failure_is_nothing_to_show_and_is_not_remembered() -> None:
    failed = Failed(code="engine_lost", message="it is gone", hint="wait")
    scripts: Iterator[Sequence[Event]] = iter([[failed], answer_script("a + b")])
    session = Session(Engine(lambda _: next(scripts)), LINE)
    assert await session.ask() == []
    assert await session.texts() == ["a + b"]


@on_a_loop
async def test_what_the_model_has_nothing_for_is_not_asked_again() -> None:
    session = Session(Engine(""), LINE)
    assert await session.ask() == []
    await session.settle()
    asked = len(session.engine.requests)
    assert await session.ask() == []
    assert len(session.engine.requests) == asked


@on_a_loop
async def test_the_stream_is_left_as_soon_as_there_is_enough() -> None:
    endless = "x = 1\n" + "y = 2\n" * 400
    session = Session(Engine(endless), "def f():\n    ▮\n")
    await session.ask()
    assert session.engine.cancelled[:1] == [session.engine.requests[0].id]


@on_a_loop
async def test_a_bracket_that_the_editor_has_added_is_fitted_to() -> None:
    session = Session(Engine(lambda p: "sum(a, b)" if p.prefix.endswith("= ") else ""), LINE)
    await session.ask()
    session.type("sum")
    session.replace(session.cursor, session.cursor, "()", cursor=session.cursor + 1)
    one = only(await session.ask())
    accepted = session.text[: one.start] + one.text + session.text[one.end :]
    assert "total = sum(a, b)\n" in accepted


@on_a_loop
async def test_line_ends_are_those_of_the_document() -> None:
    text = "def f(a):\r\n    if a:▮\r\n    return 2\r\n"
    session = Session(Engine("\n        return 1\n    return 2"), text)
    one = only(await session.ask())
    assert one.text == "\r\n        return 1"
    assert "\r" not in session.engine.prompts[0].prefix + session.engine.prompts[0].suffix
    session.type("\r\n        ret")
    assert await session.texts() == ["urn 1"]


@on_a_loop
async def test_the_log_says_what_came_of_a_wish(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lsp.complete")
    session = Session(Engine("a + b"), LINE)
    await session.ask()
    (line,) = caplog.messages
    for part in ("a.py:2", "model: 5 characters", "prompt 10 tokens, 4 kept", "plain 100%"):
        assert part in line
    assert "a + b" not in line
    session.settings = EditorSettings(enabled=False)
    await session.ask()
    assert "nothing shown: completions are off" in caplog.messages[-1]
    session.settings = EditorSettings(log_code=True)
    await session.ask()
    assert "memory" in caplog.messages[-1]
    assert "a + b" in caplog.messages[-1]


@on_a_loop
async def test_what_is_shown_and_decoded_is_counted() -> None:
    session = Session(Engine("a + b"), LINE)
    one = only(await session.ask())
    assert session.counts.shows == [(one,)]
    assert session.counts.rounds == 3
    session.settings = EditorSettings(enabled=False)
    await session.ask()
    assert session.counts.nothings == 1


@on_a_loop
async def test_tokens_that_were_computed_after_a_cancel_are_counted() -> None:
    held = EngineStatus(
        model="scripted", held=(Held(conversation="file:///project/a.py", tokens=104),)
    )
    engine = Engine("a + b", hold_after=3, status=held)
    session = Session(engine, LINE)
    task = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.06)
    # The last round seen ended with 100 tokens; 105 are in the row or pending.
    assert session.counts.cancels == [5]


@on_a_loop
async def test_closing_stops_everything() -> None:
    engine = Engine("a + b", hold_after=1)
    session = Session(engine, LINE)
    task = asyncio.ensure_future(session.ask())
    await engine.holding.wait()
    await session.completer.close()
    assert await task is None
    assert engine.cancelled == [engine.requests[0].id]
