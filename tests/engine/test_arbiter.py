"""The controller against texts whose acceptance is known: what it loses to the best that hindsight
could have pinned, and that it never loses much to plain decoding."""

from __future__ import annotations

import statistics

import pytest

from engine.acceptance import Prior
from engine.protocol import Route

from .simulated import CHEAP_ROWS, Played, SimulatedArm, Simulation, steady

COPIES = Prior(rates=(0.35, 0.75, 0.85), worth=3.0)
HEADS = Prior(rates=(0.6, 0.45, 0.38), worth=12.0)
EXITS = Prior(rates=(0.2, 0.2, 0.2), worth=6.0)
SEEDS = range(8)


def copying(rate: float) -> SimulatedArm:
    return SimulatedArm(rate=steady(rate), prior=COPIES)


def head(rate: float) -> SimulatedArm:
    """A trained head: a third of a plain round per token."""
    return SimulatedArm(rate=steady(rate), c=0.3, prior=HEADS)


def early_exit(rate: float) -> SimulatedArm:
    """Three quarters of the layers per token."""
    rests = [0.3 + 0.85 * ratio for ratio in CHEAP_ROWS]
    return SimulatedArm(rate=steady(rate), c=0.78, prior=EXITS, rests=rests)


def texts(arms: dict[Route, SimulatedArm], tokens: int) -> list[tuple[Played, float]]:
    """Each text as the controller decoded it, and the speed of the best fixed arm."""
    made = [Simulation(arms, tokens=tokens, seed=seed) for seed in SEEDS]
    return [(one.play(), one.best_fixed()) for one in made]


@pytest.mark.parametrize("tokens", [96, 400])
@pytest.mark.parametrize(
    "arms",
    [
        {"copy": copying(0.02)},
        {"exit_head": head(0.05)},
        {"exit_head": head(0.25)},
        {"layer_skip": early_exit(0.02)},
        {"layer_skip": early_exit(0.02), "copy": copying(0.0)},
    ],
)
def test_a_hopeless_arm_never_costs_three_percent(
    arms: dict[Route, SimulatedArm], tokens: int
) -> None:
    """From the first token of the first request on, when all there is is the assumption."""
    for played, _ in texts(arms, tokens):
        assert played.speed >= 0.97


def test_arms_that_are_all_hopeless_are_known_after_a_few_requests() -> None:
    arms = {"copy": copying(0.02), "exit_head": head(0.05), "layer_skip": early_exit(0.02)}
    one = Simulation(arms, tokens=128)
    speeds = [one.play().speed for _ in range(4)]
    assert speeds[0] >= 0.95
    assert min(speeds[1:]) >= 0.97
    assert speeds[-1] >= 0.985


@pytest.mark.parametrize(
    ("arms", "regret"),
    [
        ({"copy": copying(0.3)}, 0.04),
        ({"copy": copying(0.7)}, 0.05),
        ({"copy": copying(0.95)}, 0.08),
        ({"exit_head": head(0.6)}, 0.04),
        ({"exit_head": head(0.8)}, 0.05),
        ({"copy": copying(0.3), "exit_head": head(0.7), "layer_skip": early_exit(0.2)}, 0.05),
        ({"copy": copying(0.9), "exit_head": head(0.7), "layer_skip": early_exit(0.3)}, 0.06),
    ],
)
def test_the_regret_is_a_few_percent(arms: dict[Route, SimulatedArm], regret: float) -> None:
    """The yardstick has hindsight: it is the best k on this very text."""
    found = [1 - played.speed / best for played, best in texts(arms, 800)]
    assert statistics.mean(found) <= regret


def test_probing_keeps_to_its_share_of_every_answer() -> None:
    arms = {"copy": copying(0.02), "exit_head": head(0.1), "layer_skip": early_exit(0.05)}
    for tokens in (10, 60, 500):
        for played, _ in texts(arms, tokens):
            assert played.probing <= 0.01 * played.time


def test_a_short_answer_is_not_probed() -> None:
    """Two probes made an answer of ten tokens a fifth slower."""
    for played, _ in texts({"layer_skip": early_exit(0.05)}, 10):
        assert played.speed == 1.0


def test_a_text_that_switches_beats_every_fixed_arm() -> None:
    arms: dict[Route, SimulatedArm] = {
        "copy": SimulatedArm(rate=lambda at: 0.95 if at // 150 % 2 == 0 else 0.03, prior=COPIES),
        "exit_head": head(0.5),
    }
    for played, best in texts(arms, 900):
        assert played.speed > best


@pytest.mark.parametrize("first", [0.95, 0.02])
def test_a_switch_is_answered_within_a_few_rounds(first: float) -> None:
    """Copyable text that ends, and text that becomes copyable; the rest is learned in passing."""
    second = 0.97 - first
    arms: dict[Route, SimulatedArm] = {
        "copy": SimulatedArm(rate=lambda at: first if at < 300 else second, prior=COPIES)
    }
    for seed in SEEDS:
        played = Simulation(arms, tokens=500, seed=seed).play()
        at, after = 0, []
        for choice, tokens in zip(played.choices, played.emitted, strict=True):
            if at >= 300:
                after.append(choice.k)
            at += tokens
        if second < first:
            assert min(after[:16]) <= 5
        else:
            assert max(after[:12]) >= 3


def test_what_is_learned_in_passing_costs_nothing() -> None:
    """Copying is found out while another route drafts, without one copied round."""
    arms: dict[Route, SimulatedArm] = {
        "copy": SimulatedArm(
            rate=lambda at: 0.0 if at < 200 else 0.97, prior=Prior(rates=(0.02,) * 3, worth=3.0)
        ),
        "exit_head": head(0.8),
    }
    played = Simulation(arms, tokens=400).play()
    first = next(at for at, choice in enumerate(played.choices) if choice.route == "copy")
    before = sum(played.emitted[:first])
    assert 200 <= before <= 230
    assert not any(choice.probe for choice in played.choices[:first] if choice.route == "copy")
