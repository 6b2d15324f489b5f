"""k and route from acceptance and cost: brute force over every k is the yardstick."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DraftSettings
from engine.costs import BucketCosts, CostTable
from engine.draft_length import (
    DECAY,
    MIN_GAIN,
    MIN_K,
    PRIOR_TESTS,
    PROBE_TOKENS,
    WINDOW,
    Acceptance,
    Choice,
    DraftLength,
)
from engine.protocol import Route

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)
LAYERS: Route = "layer_skip"
rates = st.floats(0.01, 0.99)


def costs_of(
    *, draft: float = 0.1, step: float = 0.05, base: float = 1.0, buckets: tuple[int, ...] = (0,)
) -> CostTable:
    """r(w) = base + step · (w − 1), the same for the whole pass and for the tail."""
    ratio = {w: base + step * (w - 1) for w in range(1, 34)}
    return CostTable(
        exit_layer=3,
        layers=4,
        buckets={
            bucket: BucketCosts(
                unit_ms=20.0, pass_ratio=dict(ratio), draft_ratio=draft, tail_ratio=dict(ratio)
            )
            for bucket in buckets
        },
    )


def tried(first: float, later: float) -> Acceptance:
    """A record whose figures are more than a guess: nothing is probed at once."""
    record = Acceptance(first=first, later=later)
    record.tried = True
    return record


def controller(
    costs: CostTable,
    records: dict[tuple[Route, int], Acceptance],
    *,
    policy: str = "cost",
    max_k: int = 8,
    pinned_k: int | None = None,
) -> DraftLength:
    settings_ = DraftSettings(policy="window" if policy == "window" else "cost", max_k=max_k)
    return DraftLength(settings_, costs, records, pinned_k=pinned_k)


def choose(one: DraftLength, offers: dict[Route, int], longest: int = 99) -> Choice:
    return one.choose(offers, context_tokens=100, longest=longest)


@MODERATE
@given(alpha=rates, k=st.integers(1, 32))
def test_equal_acceptance_gives_the_known_formula(alpha: float, k: int) -> None:
    record = Acceptance(first=alpha, later=alpha)
    assert record.expected_tokens(k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


@MODERATE
@given(first=rates, later=rates, k=st.integers(0, 12))
def test_expected_tokens_are_the_sum_over_kept_prefixes(first: float, later: float, k: int) -> None:
    record = Acceptance(first=first, later=later)
    wanted = 1 + sum(first * later ** (i - 1) for i in range(1, k + 1))
    assert record.expected_tokens(k) == pytest.approx(wanted)


def test_a_draft_that_is_always_right_yields_all_of_it() -> None:
    assert Acceptance(first=1.0, later=1.0).expected_tokens(7) == pytest.approx(8.0)


@MODERATE
@given(rounds=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_acceptance_is_a_decayed_mean_over_tested_tokens(rounds: list[tuple[int, int]]) -> None:
    record = Acceptance(first=0.5, later=0.25)
    outcomes: tuple[list[bool], list[bool]] = ([], [])
    for accepted, rejected in rounds:
        tested = accepted + min(rejected, 1)
        record.observe(tested, accepted)
        for position in range(tested):
            outcomes[min(position, 1)].append(position < accepted)
    for seen, guess, found in zip(outcomes, (0.5, 0.25), (record.first, record.later), strict=True):
        weights = [DECAY ** (len(seen) - 1 - i) for i in range(len(seen))]
        prior = PRIOR_TESTS * DECAY ** len(seen)
        kept = guess * prior + sum(w for w, ok in zip(weights, seen, strict=True) if ok)
        assert found == pytest.approx(kept / (prior + sum(weights)))


def test_the_memory_is_about_the_window_of_tests() -> None:
    record = Acceptance(first=0.0, later=0.0)
    for _ in range(300):
        record.observe(1, 1)
    for _ in range(64):
        record.observe(1, 0)
    assert record.first == pytest.approx(1 / 2.718, abs=0.02)


@MODERATE
@given(
    first=rates,
    later=rates,
    draft=st.floats(0.01, 0.9),
    step=st.floats(0.0, 0.4),
    max_k=st.integers(1, 12),
    longest=st.integers(1, 20),
    route=st.sampled_from(["copy", "layer_skip"]),
)
def test_the_chosen_k_is_the_best_of_all(
    first: float, later: float, draft: float, step: float, max_k: int, longest: int, route: Route
) -> None:
    record = tried(first=first, later=later)
    one = controller(costs_of(draft=draft, step=step), {(route, 0): record}, max_k=max_k)

    def gain(k: int) -> float:
        drafting = k * draft if route == "layer_skip" else 0.0
        expected = 1 + sum(first * later ** (i - 1) for i in range(1, k + 1))
        return expected / (drafting + 1 + step * k)

    best = max(gain(k) for k in range(1, min(max_k, longest) + 1))
    choice = choose(one, {route: 0}, longest)
    if choice.route == "plain":
        best_k = max(range(1, min(max_k, longest) + 1), key=gain)
        assert best < MIN_GAIN + 1e-9 or best_k < MIN_K
        assert choice.k == 0
        return
    assert choice.route == route
    assert MIN_K <= choice.k <= min(max_k, longest)
    assert choice.gain == pytest.approx(best)
    assert gain(choice.k) == pytest.approx(best)
    assert best >= MIN_GAIN - 1e-9


def test_a_better_draft_is_longer_and_a_dearer_one_shorter() -> None:
    def k_at(alpha: float, draft: float) -> int:
        records: dict[tuple[Route, int], Acceptance] = {
            (LAYERS, 0): tried(first=alpha, later=alpha)
        }
        return choose(controller(costs_of(draft=draft), records, max_k=20), {LAYERS: 0}).k

    by_rate = [k_at(alpha, 0.1) for alpha in (0.6, 0.7, 0.8, 0.9, 0.95)]
    by_cost = [k_at(0.9, draft) for draft in (0.02, 0.05, 0.1, 0.2, 0.4)]
    assert by_rate == sorted(by_rate)
    assert by_rate[0] < by_rate[-1]
    assert by_cost == sorted(by_cost, reverse=True)
    assert by_cost[0] > by_cost[-1]


def test_the_best_of_several_routes_drafts() -> None:
    records: dict[tuple[Route, int], Acceptance] = {
        ("copy", 1): tried(first=0.5, later=0.5),
        ("copy", 4): tried(first=0.95, later=0.95),
        (LAYERS, 0): tried(first=0.8, later=0.8),
    }
    one = controller(costs_of(draft=0.05), records)
    assert choose(one, {"copy": 1, LAYERS: 0}).route == LAYERS
    assert choose(one, {"copy": 4, LAYERS: 0}).route == "copy"


@pytest.mark.parametrize("longest", [0, -1])
def test_with_no_token_to_draft_it_is_plain(longest: int) -> None:
    one = controller(costs_of(), {("copy", 0): tried(first=0.9, later=0.9)})
    choice = choose(one, {"copy": 0}, longest)
    assert (choice.route, choice.k, choice.reason) == ("plain", 0, "the last token")


def test_with_nothing_on_offer_it_is_plain() -> None:
    choice = choose(controller(costs_of(), {("copy", 0): tried(first=0.9, later=0.9)}), {})
    assert (choice.route, choice.k, choice.reason) == ("plain", 0, "nothing to copy")


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_a_pinned_k_is_kept_however_bad_it_is(k: int) -> None:
    records: dict[tuple[Route, int], Acceptance] = {(LAYERS, 0): tried(first=0.0, later=0.0)}
    one = controller(costs_of(draft=3.0), records, pinned_k=k)
    for _ in range(20):
        choice = choose(one, {LAYERS: 0})
        assert (choice.route, choice.k) == (LAYERS, k)
        one.observe(LAYERS, 0, tested=1, accepted=0)
    assert choose(one, {LAYERS: 0}, longest=1).k == 1
    assert choose(one, {}).route == "plain"


def test_a_losing_route_rests_with_a_reason_that_names_it() -> None:
    records: dict[tuple[Route, int], Acceptance] = {(LAYERS, 0): tried(first=0.3, later=0.3)}
    one = controller(costs_of(draft=0.8), records)
    choice = one.choose({LAYERS: 0}, context_tokens=14_200, longest=9)
    assert (choice.route, choice.k) == ("plain", 0)
    assert "14.2k" in choice.reason
    assert LAYERS in choice.reason
    assert "would cost" in choice.reason


def test_a_gain_below_three_percent_is_not_taken() -> None:
    """One side of the border and the other: E(2) = 1.75 at α = ½."""
    for ratio, route in ((1.75 / 1.02, "plain"), (1.75 / 1.04, "copy")):
        costs = costs_of(step=0.0, base=ratio)
        costs.at(0).pass_ratio = {2: 9.0, 3: ratio, 4: 9.0}
        one = controller(costs, {("copy", 0): tried(first=0.5, later=0.5)}, max_k=2)
        choice = choose(one, {"copy": 0})
        assert choice.route == route
        if route == "plain":
            assert "would win only 2 %" in choice.reason


def test_a_best_k_of_one_is_plain() -> None:
    costs = costs_of(step=0.0)
    costs.at(0).pass_ratio = {2: 1.0, 3: 9.0}
    one = controller(costs, {("copy", 0): tried(first=0.9, later=0.9)}, max_k=2)
    choice = choose(one, {"copy": 0})
    assert choice.route == "plain"
    assert "with k 1 at best" in choice.reason


def test_a_resting_route_is_probed_again_and_again() -> None:
    records: dict[tuple[Route, int], Acceptance] = {(LAYERS, 0): tried(first=0.1, later=0.1)}
    one = controller(costs_of(draft=0.8), records)
    emitted, probes = 0, []
    while len(probes) < 4:
        choice = choose(one, {LAYERS: 0})
        if choice.route == LAYERS:
            assert (choice.reason, choice.k) == ("probe", MIN_K)
            probes.append(emitted)
            one.observe(LAYERS, 0, tested=1, accepted=0)
        else:
            one.observe("plain", 0, tested=0, accepted=0)
        emitted += 1
    gaps = [after - before for before, after in itertools.pairwise(probes)]
    assert all(gap == pytest.approx(PROBE_TOKENS, abs=2) for gap in gaps)
    assert probes[0] <= PROBE_TOKENS


def test_what_is_emitted_counts_towards_the_probe_and_not_the_rounds() -> None:
    records: dict[tuple[Route, int], Acceptance] = {
        (LAYERS, 0): tried(first=0.1, later=0.1),
        ("copy", 0): tried(first=0.99, later=0.99),
    }
    one = controller(costs_of(draft=0.8), records)
    assert choose(one, {LAYERS: 0}).route == "plain"
    for _ in range(PROBE_TOKENS // 8):
        assert choose(one, {"copy": 0, LAYERS: 0}).route == "copy"
        one.observe("copy", 0, tested=7, accepted=7)
    assert choose(one, {LAYERS: 0}).reason == "probe"


def test_a_probe_that_wins_brings_the_route_back() -> None:
    records: dict[tuple[Route, int], Acceptance] = {(LAYERS, 0): tried(first=0.1, later=0.1)}
    one = controller(costs_of(draft=0.1), records)
    tokens, choice = 0, choose(one, {LAYERS: 0})
    assert choice.route == "plain"
    while choice.route == "plain" or choice.reason == "probe":
        one.observe(choice.route, 0, tested=choice.k, accepted=choice.k)
        tokens += choice.k + 1
        assert tokens < 20 * PROBE_TOKENS
        choice = choose(one, {LAYERS: 0})
    assert choice.gain >= MIN_GAIN


def test_context_buckets_are_kept_apart() -> None:
    """The same route drafts where its pass is cheap and rests where it is dear."""
    costs = costs_of(step=0.05, buckets=(0, 7))
    costs.buckets[7].pass_ratio = {w: 1.0 + 2.0 * (w - 1) for w in range(1, 34)}
    one = controller(costs, {("copy", 0): tried(first=0.8, later=0.8)})
    assert one.choose({"copy": 0}, context_tokens=100, longest=9).route == "copy"
    long = one.choose({"copy": 0}, context_tokens=20_000, longest=9)
    assert long.route == "plain"
    assert "20.0k" in long.reason
    assert one.choose({"copy": 0}, context_tokens=100, longest=9).route == "copy"


def test_evidence_classes_are_kept_apart() -> None:
    records: dict[tuple[Route, int], Acceptance] = {
        ("copy", 0): tried(first=0.5, later=0.5),
        ("copy", 5): tried(first=0.5, later=0.5),
    }
    one = controller(costs_of(), records)
    for _ in range(50):
        one.observe("copy", 5, tested=4, accepted=4)
    assert records["copy", 0].first == 0.5
    assert records["copy", 5].first > 0.9


def windowed() -> tuple[DraftLength, dict[tuple[Route, int], Acceptance]]:
    records: dict[tuple[Route, int], Acceptance] = {("copy", 0): tried(first=1.0, later=1.0)}
    return controller(costs_of(step=0.0), records, policy="window", max_k=32), records


def feed_window(one: DraftLength, kept: int, *, of: int = WINDOW) -> None:
    """A full window of tests of which `kept` were accepted, the rejected ones spread evenly."""
    done = 0
    for test in range(1, of + 1):
        accepted = round(kept * test / of) > done
        done += accepted
        one.observe("copy", 0, tested=1, accepted=int(accepted))


def window_k(one: DraftLength) -> int:
    """The k it would draft with; the acceptance record is told nothing."""
    return choose(one, {"copy": 0}).k


@pytest.mark.parametrize(
    ("kept", "step"), [(64, 1), (55, 1), (54, 0), (50, 0), (45, 0), (44, -1), (40, -1)]
)
def test_the_window_steps_at_its_borders(kept: int, step: int) -> None:
    """55 of 64 is above 0.85, 54 is not; 45 is above 0.70, 44 is not."""
    one, _ = windowed()
    before = window_k(one)
    feed_window(one, kept)
    assert window_k(one) - before == step


def test_the_window_waits_until_it_is_full() -> None:
    one, _ = windowed()
    before = window_k(one)
    feed_window(one, 63, of=63)
    assert window_k(one) == before
    one.observe("copy", 0, tested=1, accepted=1)
    assert window_k(one) == before + 1


def test_after_a_step_the_window_starts_afresh() -> None:
    one, _ = windowed()
    before = window_k(one)
    feed_window(one, 64)
    feed_window(one, 63, of=63)
    assert window_k(one) == before + 1


def test_between_the_borders_the_window_slides() -> None:
    one, _ = windowed()
    before = window_k(one)
    feed_window(one, 50)
    for _ in range(30):  # the oldest tests leave as these come
        one.observe("copy", 0, tested=1, accepted=1)
    assert window_k(one) == before + 1


def test_the_window_stays_from_two_to_eight() -> None:
    one, _ = windowed()
    for _ in range(12):
        feed_window(one, 64)
    assert window_k(one) == 8
    for _ in range(12):
        feed_window(one, 44)
    assert window_k(one) == 2


def test_a_window_bounds_k_by_what_is_wanted_too() -> None:
    one, _ = windowed()
    assert choose(one, {"copy": 0}, longest=3).k == 3


def test_a_route_never_tried_is_tried_at_once_and_only_once() -> None:
    records: dict[tuple[Route, int], Acceptance] = {(LAYERS, 0): Acceptance(first=0.1, later=0.1)}
    one = controller(costs_of(draft=0.5), records)
    first = choose(one, {LAYERS: 0})
    assert (first.route, first.k, first.reason) == (LAYERS, MIN_K, "probe")
    one.observe(LAYERS, 0, tested=1, accepted=0)
    assert choose(one, {LAYERS: 0}).route == "plain"
    later = controller(costs_of(draft=0.5), records)
    assert choose(later, {LAYERS: 0}).route == "plain"


def test_a_request_starts_between_the_guess_and_what_was_learned() -> None:
    """After a text in which copying never held, one in which it always does is found out soon."""
    shared: dict[tuple[Route, int], Acceptance] = {("copy", 0): Acceptance(first=0.7, later=0.7)}
    for _ in range(200):
        shared["copy", 0].observe(1, 0)
    assert shared["copy", 0].first < 0.05
    one = controller(costs_of(), shared)
    assert choose(one, {"copy": 0}).route == "copy"


def test_what_a_request_learns_is_kept_for_the_next() -> None:
    shared: dict[tuple[Route, int], Acceptance] = {("copy", 0): Acceptance(first=0.5, later=0.5)}
    controller(costs_of(), shared).observe("copy", 0, tested=4, accepted=4)
    assert shared["copy", 0].first > 0.5
    assert shared["copy", 0].tried


def test_without_any_record_plain_was_asked_for() -> None:
    choice = choose(controller(costs_of(), {}), {})
    assert (choice.route, choice.reason) == ("plain", "plain decoding was asked for")
