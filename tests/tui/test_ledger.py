"""What must go when a message does not fit: the sums, and the screen on which it is chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from engine.protocol import PromptCost, Role
from tui.ledger import Entry, LedgerScreen
from tui.ledger_plan import Choice, excess, exchanges, plan, still_over

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "user", "assistant", "user")
COST = PromptCost(
    total_tokens=9120,
    turn_tokens=(20, 1200, 2400, 900, 3100, 300),
    snippet_tokens=(1000, 200),
    context_limit=8192,
)
TEXTS = (
    "You are brief.",
    "What does [bold]main[/bold] do?",
    "It parses the arguments, " * 9,
    "And \x1b[31mthen\x1b[0m?\nGo on.",
    "回答: then it runs.",
    "Compare both files.",
)
ENTRIES = [Entry(role=role, text=text) for role, text in zip(ROLES, TEXTS, strict=True)]


def test_nothing_goes_when_it_fits() -> None:
    roomy = PromptCost(total_tokens=100, turn_tokens=(100,), snippet_tokens=(), context_limit=200)
    assert excess(roomy, 100) == 0
    assert plan(roomy, 100).turns == ()
    assert excess(roomy, 101) == 1
    assert (plan(roomy, 101).turns, plan(roomy, 101).short_by) == ((), 1)


def test_the_oldest_exchanges_go_first_and_whole() -> None:
    assert exchanges(COST, ROLES) == ((1, 2), (3, 4))
    assert excess(COST, 1024) == 1952
    assert plan(COST, 1024, ROLES).turns == (1, 2)
    assert plan(COST, 2672, ROLES).turns == (1, 2)
    assert plan(COST, 2673, ROLES).turns == (1, 2, 3, 4)
    assert plan(COST, 7672, ROLES).short_by == 1000
    assert plan(COST, 7672, ROLES, files=[0]).short_by == 0


def test_a_file_that_goes_saves_messages() -> None:
    assert plan(COST, 72, ROLES, files=[0]).turns == ()
    assert plan(COST, 73, ROLES, files=[0]).turns == (1, 2)


@st.composite
def prompts(draw: st.DrawFn) -> tuple[PromptCost, list[Role], int]:
    roles: list[Role] = draw(st.lists(st.sampled_from(["user", "assistant"]), max_size=8))
    roles = [*draw(st.sampled_from([[], ["system"]])), *roles, "user"]
    turns = tuple(draw(st.integers(1, 500)) for _ in roles)
    files = tuple(draw(st.lists(st.integers(1, 500), max_size=4)))
    cost = PromptCost(
        total_tokens=sum(turns) + sum(files) + draw(st.integers(0, 20)),
        turn_tokens=turns,
        snippet_tokens=files,
        context_limit=draw(st.integers(1, 3000)),
    )
    return cost, roles, draw(st.integers(1, 1000))


@given(prompts())
def test_a_plan_takes_as_little_as_it_may_and_as_much_as_it_must(
    prompt: tuple[PromptCost, list[Role], int],
) -> None:
    cost, roles, reserve = prompt
    made = plan(cost, reserve, roles)
    groups = exchanges(cost, roles)
    gone = [group for group in groups if group[0] in made.turns]
    assert gone == list(groups[: len(gone)]), "the oldest, without a gap"
    assert made.turns == tuple(n for group in gone for n in group)
    kept = [role for n, role in enumerate(roles) if n not in made.turns]
    assert kept[-1] == "user"
    assert kept.count("system") == roles.count("system")
    over = still_over(cost, reserve, Choice(turns=made.turns))
    assert made.short_by == max(0, over)
    if gone:
        assert still_over(cost, reserve, Choice(turns=made.turns[: -len(gone[-1])])) > 0
    if made.short_by:
        assert len(gone) == len(groups), "short only with nothing left that may go"


@given(prompts(), st.data())
def test_a_file_taken_out_is_counted_once(
    prompt: tuple[PromptCost, list[Role], int], data: st.DataObject
) -> None:
    cost, roles, reserve = prompt
    every = range(len(cost.snippet_tokens))
    files = data.draw(st.sets(st.sampled_from(every)) if every else st.just(set()))
    made = plan(cost, reserve, roles, sorted(files))
    over = still_over(cost, reserve, Choice(turns=made.turns, files=tuple(sorted(files))))
    assert made.short_by == max(0, over)
    assert set(made.turns) <= set(plan(cost, reserve, roles).turns)


# The screen


class Asking(App[None]):
    """Shows the ledger at once and keeps what was chosen."""

    def __init__(self, cost: PromptCost = COST, reserve: int = 1024) -> None:
        super().__init__()
        self.chosen: list[Choice | None] = []
        self._ledger = LedgerScreen(cost, ENTRIES, ["src/app.py", "a [b]/é.py"], reserve)

    def on_mount(self) -> None:
        self.push_screen(self._ledger, self.chosen.append)


def run(*keys: str, app: Asking | None = None, size: tuple[int, int] = (80, 24)) -> Asking:
    app = app or Asking()

    async def play() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.press(*keys)
            await pilot.pause()

    asyncio.run(play())
    return app


def shown(app: Asking) -> tuple[list[str], str]:
    """Rows and the sentence about the rest, from an app that still runs."""
    rows = app.screen.query_one(OptionList)
    texts = [str(rows.get_option_at_index(n).prompt) for n in range(rows.option_count)]
    return texts, str(app.screen.query_one("#ledger-rest", Static).content)


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["escape"], None),
        (["c"], None),
        (["o", "s"], Choice(turns=(1, 2))),
        (["end", "up", "space", "o", "s"], Choice(turns=(1, 2), files=(0,))),
        (["down", "down", "down", "space", "ctrl+s"], Choice(turns=(1, 2, 3, 4))),
        (["down", "down", "enter", "s"], Choice(turns=(1, 2))),
    ],
)
def test_it_ends_with_what_was_chosen(keys: Sequence[str], chosen: Choice | None) -> None:
    assert run(*keys).chosen == [chosen]


@pytest.mark.parametrize(
    "keys", [["s"], ["end", "space", "s"], ["space", "s"], ["o", "down", "space", "s"]]
)
def test_what_does_not_fit_is_not_sent(keys: Sequence[str]) -> None:
    """Nothing marked, too little marked, what may not go, and a mark taken back."""
    assert run(*keys).chosen == []


def test_every_turn_and_file_is_listed_with_its_tokens_and_safely() -> None:
    app = Asking()

    async def play() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            rows, rest = shown(app)
            assert rows[0].startswith("       20  system")
            assert rows[1] == "[ ] 1,200  user       What does [bold]main[/bold] do?"
            assert "␛[31mthen␛[0m? Go on." in rows[3]
            assert rows[6:] == [
                "[ ] 1,000  file       src/app.py",
                "[ ]   200  file       a [b]/é.py",
            ]
            assert rest == "Left out: 0 messages, 0 files. 1,952 too many still."
            await pilot.press("o")
            rows, rest = shown(app)
            assert [row[:3] for row in rows] == ["   ", "[x]", "[x]", "[ ]", "[ ]", "   "] + [
                "[ ]"
            ] * 2
            assert rest == "Left out: 2 messages, 0 files. Fits, 1,648 to spare."

    asyncio.run(play())


def test_a_message_that_can_never_fit_says_what_helps() -> None:
    app = Asking(reserve=8000)

    async def play() -> None:
        async with app.run_test() as pilot:
            await pilot.pause()
            assert "lower /max-tokens" in shown(app)[1]

    asyncio.run(play())


@pytest.mark.parametrize("size", [(90, 20), (40, 12)], ids=["wide", "small"])
def test_the_ledger_looks_right(snap_compare: Callable[..., bool], size: tuple[int, int]) -> None:
    async def mark(pilot: Pilot[None]) -> None:
        await pilot.press("o", "end", "space")
        await pilot.pause()

    assert snap_compare(Asking(), terminal_size=size, run_before=mark)
