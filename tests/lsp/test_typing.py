"""Whatever is typed, deleted, accepted or answered late: what is shown goes on from the text.

The model of these tests knows a text by heart and answers with the rest of its line, so that each
suggestion can be judged: put into the document, it gives more of that text.
"""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import FillPrompt
from lsp.complete import Suggestion
from lsp.placing import Placed, Wanted, inserted, laid_out, numbered, placed
from lsp.prefetch import after_enter
from lsp.recent import Fill
from lsp.settings import EditorSettings
from tests.lsp.completing import Engine, Session

BY_HEART = """def mean(values):
    total = sum(values)
    count = len(values)
    return total / count
"""
STEPS = st.lists(
    st.sampled_from(["type", "type", "type", "accept", "wrong", "delete", "ask", "rest", "hold"]),
    max_size=40,
)


def know(prompt: FillPrompt) -> str:
    start = BY_HEART.find(prompt.prefix)
    rest = BY_HEART[len(prompt.prefix) :] if start == 0 else "wrong(1)"
    return rest.partition("\n")[0]


async def follow(steps: list[str]) -> None:
    engine = Engine(know)
    session = Session(engine, "def m▮")
    shown: list[Suggestion] = []
    waiting: list[asyncio.Task[list[Suggestion] | None]] = []
    for step in steps:
        typed = session.text
        if step == "type":
            session.type(BY_HEART[len(typed) : len(typed) + 1] or "x")
        elif step == "wrong":
            session.type("q")
        elif step == "delete" and session.cursor > 6:
            session.delete()
        elif step == "accept" and shown:
            session.accept(shown[0])
        elif step == "rest":
            await session.settle()
        elif step == "hold":
            waiting.append(asyncio.ensure_future(session.ask()))
            await asyncio.sleep(0)
        shown = await session.ask() or [] if step in ("ask", "type") else []
        judge(session, shown)
    for task in waiting:
        # Where nothing has changed since they came home, they are as good as any.
        await task
    await session.completer.close()


def judge(session: Session, shown: list[Suggestion]) -> None:
    for one in shown:
        assert one.start == one.end == session.cursor
        assert one.text.strip()
        now = session.text[: one.start] + one.text + session.text[one.end :]
        if session.text == BY_HEART[: len(session.text)]:
            assert BY_HEART.startswith(now)
        else:
            assert "wrong(1)".endswith(one.text)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_what_is_shown_always_goes_on_from_what_is_there(steps: list[str]) -> None:
    asyncio.run(asyncio.wait_for(follow(steps), 20))


@given(
    text=st.text("ab(\n", max_size=8),
    at=st.integers(0, 8),
    fill=st.text("ab(", min_size=1, max_size=5),
    now=st.text("ab(\n", max_size=12),
)
def test_a_late_answer_gives_the_text_it_was_made_for_or_is_left_out(
    text: str, at: int, fill: str, now: str
) -> None:
    offset = min(at, len(text))
    session = Session(Engine(""), f"{text[:offset]}▮{text[offset:]}")
    place = placed(session.wanted())
    meant = text[:offset] + fill + text[offset:]
    for one in laid_out(place, [Fill(text=fill)], now, "model", numbered("x")):
        assert now[: one.start] + one.text + now[one.end :] == meant
    typed = inserted(text, offset, now)
    assert typed is None or text[:offset] + typed + text[offset:] == now


def test_a_wish_without_a_popup_is_about_the_cursor() -> None:
    session = Session(Engine(""), "a▮b")
    place = placed(Wanted(snapshot=session.wanted().snapshot))
    assert place == Placed(base=place.base, snapshot=place.base, start=1, end=1)


def below(text: str, language: str = "python") -> str | None:
    session = Session(Engine(""), text, language=language)
    place = after_enter(session.wanted().snapshot, EditorSettings())
    return None if place is None else f"{place.text[: place.offset]}▮{place.text[place.offset :]}"


def test_the_line_after_enter_is_indented_as_editors_do() -> None:
    assert below("def f():\n    x = 1▮\n") == "def f():\n    x = 1\n    ▮\n"
    assert below("def f():▮\n") == "def f():\n    ▮\n"
    assert below("def f():\n    return 1▮\n") == "def f():\n    return 1\n▮\n"
    assert below("func f() {\n\tx := 1▮\n}\n", "go") == "func f() {\n\tx := 1\n\t▮\n}\n"
    assert below("def f():\r\n    x = 1▮\r\n") == "def f():\r\n    x = 1\r\n    ▮\r\n"
    assert below("    ▮\n") is None
    assert below("f(▮)\n") is None
