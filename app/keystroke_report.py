"""The figures of the keystroke benchmark, from the answers one by one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from app.keystrokes import Answer, Played

_FROM_MEMORY = ("memory", "prefetch")
_KINDS: tuple[tuple[str, Callable[[Answer], bool]], ...] = (
    ("from memory", lambda one: one.outcome in _FROM_MEMORY),
    ("of these prefetched", lambda one: one.outcome == "prefetch"),
    ("model, one line", lambda one: one.outcome == "model" and one.lines == 1),
    ("model, several lines", lambda one: one.outcome == "model" and one.lines > 1),
    ("nothing to show", lambda one: one.outcome == "nothing"),
)


def figures(played: Played) -> dict[str, Any]:
    """All of it, for a program."""
    outcomes = Counter(one.outcome for one in played.answers)
    shown = [one for one in played.answers if one.outcome in (*_FROM_MEMORY, "model")]
    memory = sum(one.outcome in _FROM_MEMORY for one in shown)
    return {
        "wishes": len(played.answers),
        "outcomes": dict(outcomes),
        "key_to_answer_ms": {name: _times(played.answers, holds) for name, holds in _KINDS},
        "shown": len(shown),
        "share_from_memory": memory / len(shown) if shown else None,
        "typed_chars": played.typed_chars,
        "accepted_chars": played.accepted_chars,
        "cancels_looked_at": len(played.overruns),
        "tokens_after_cancel": sum(played.overruns),
        "most_tokens_after_a_cancel": max(played.overruns, default=0),
        "stale": _traces(shown, lambda one: one.stale),
        "duplicates": _traces(shown, lambda one: one.duplicate),
        "leaks": _traces(shown, lambda one: one.leak),
        "wrong_texts": list(played.wrong_texts),
    }


def lines_of(played: Played) -> Iterator[str]:
    """All of it, for a person."""
    told = figures(played)
    yield f"{'key to answer, ms':<22} {'p50':>7} {'p90':>7} {'p95':>7} {'answers':>8}"
    for name, times in told["key_to_answer_ms"].items():
        numbers = (f"{times[key]:>7.0f}" if times["count"] else f"{'–':>7}" for key in _PERCENTS)
        yield f"{name:<22} {' '.join(numbers)} {times['count']:>8}"
    outcomes = told["outcomes"]
    given_up = ", ".join(
        f"{outcomes.get(name, 0)} {name}"
        for name in ("superseded", "cancelled", "error", "unanswered")
    )
    yield f"{told['wishes']} wishes; besides the above {given_up}"
    share = told["share_from_memory"]
    yield f"served from memory: {'–' if share is None else f'{share:.0%}'} of {told['shown']} shown"
    accepted, typed = told["accepted_chars"], told["typed_chars"]
    yield f"accepted: {accepted} of {typed} characters ({accepted / max(typed, 1):.0%})"
    yield (
        f"computed after a cancel: {told['tokens_after_cancel']} tokens "
        f"in {told['cancels_looked_at']} cancels looked at, "
        f"at most {told['most_tokens_after_a_cancel']}"
    )
    for name in ("stale", "duplicates", "leaks", "wrong_texts"):
        traces = f" ({', '.join(sorted(set(told[name])))})" if told[name] else ""
        yield f"{name.replace('_', ' ')}: {len(told[name])}{traces}"


_PERCENTS = {"p50": 0.5, "p90": 0.9, "p95": 0.95}


def _times(answers: Sequence[Answer], holds: Callable[[Answer], bool]) -> dict[str, Any]:
    times = sorted(one.ms for one in answers if holds(one))
    percents = {name: _percentile(times, part) for name, part in _PERCENTS.items()}
    return {"count": len(times), **percents}


def _percentile(times: Sequence[float], part: float) -> float | None:
    return times[min(len(times) - 1, int(part * len(times)))] if times else None


def _traces(answers: Sequence[Answer], is_wrong: Callable[[Answer], bool]) -> list[str]:
    return [one.trace for one in answers if is_wrong(one)]
