"""k and route from acceptance and cost: brute force over every k is the yardstick."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.acceptance import Acceptance, LiveAcceptance, Outlook, Prior
from engine.config import DraftSettings
from engine.costs import BucketCosts, CostTable
from engine.draft_length import (
    FIRST_K,
    GROWTH,
    MIN_GAIN,
    MIN_K,
    PROBE_SHARE,
    STALE_ROUNDS,
    WINDOW,
    Choice,
    DraftLength,
    best_arm,
)
from engine.protocol import Route

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)
LAYERS: Route = "layer_skip"
UNIT_MS = 20.0
rates = st.floats(0.01, 0.99)


def costs_of(
    *, draft: float = 0.1, step: float = 0.05, base: float = 1.0, buckets: tuple[int, ...] = (0,)
) -> CostTable:
    """r(w) = base + step · (w − 1), the same for the whole pass and for the rest of one."""
    ratio = [1.0, *(base + step * rows for rows in range(1, 33))]
    return CostTable(
        buckets={
            bucket: BucketCosts(
                unit_ms=UNIT_MS,
                passes=list(ratio),
                drafts={LAYERS: [draft * k for k in range(1, 33)]},
                rests={LAYERS: list(ratio)},
            )
            for bucket in buckets
        },
    )


class One:
    """A controller with the records of one request."""

    def __init__(
        self,
        costs: CostTable,
        records: Mapping[tuple[Route, int], float | tuple[float, float, float]],
        *,
        policy: str = "cost",
        max_k: int = 32,
        pinned_k: int | None = None,
        proven: bool = True,
    ) -> None:
        policy_ = "window" if policy == "window" else "cost"
        self.lengths = DraftLength(
            DraftSettings(policy=policy_, max_k=max_k),
            costs,
            pinned_k=pinned_k,
            shadowed={"copy"},
        )
        self.live: dict[tuple[Route, int], LiveAcceptance] = {}
        for key, rate in records.items():
            rates_ = rate if isinstance(rate, tuple) else (rate, rate, rate)
            self.live[key] = LiveAcceptance(Acceptance(Prior(rates=rates_, worth=6.0)))
        if proven:
            for route, _ in records:
                self.ran(Choice(route=route, k=32, reason=""), accepted=32)

    def choose(self, offers: dict[Route, int], longest: int = 99, context: int = 100) -> Choice:
        return self.lengths.choose(offers, self.live, context_tokens=context, longest=longest)

    def ran(self, choice: Choice, *, accepted: int = 0, ms: float = UNIT_MS) -> None:
        """A round as chosen; the acceptance records are told nothing."""
        self.lengths.observe(
            choice,
            drafted=choice.k,
            tested=min(accepted + 1, choice.k),
            accepted=accepted,
            round_ms=ms,
        )


@MODERATE
@given(
    first=rates,
    second=rates,
    later=rates,
    draft=st.floats(0.01, 0.9),
    step=st.floats(0.0, 0.4),
    max_k=st.integers(1, 32),
    longest=st.integers(1, 40),
    route=st.sampled_from(["copy", "layer_skip"]),
)
def test_the_chosen_k_is_the_best_of_all(
    first: float,
    second: float,
    later: float,
    draft: float,
    step: float,
    max_k: int,
    longest: int,
    route: Route,
) -> None:
    one = One(costs_of(draft=draft, step=step), {(route, 0): (first, second, later)}, max_k=max_k)
    one.lengths._in_use.clear()

    def gain(k: int) -> float:
        drafting = k * draft if route == LAYERS else 0.0
        kept = [first, first * second, *(first * second * later**n for n in range(1, 31))]
        return (1 + sum(kept[:k])) / (drafting + 1 + step * k)

    best = max(gain(k) for k in range(1, min(max_k, longest) + 1))
    choice = one.choose({route: 0}, longest)
    if choice.route == "plain":
        assert best < MIN_GAIN + 1e-9
        assert choice.k == 0
        return
    assert choice.route == route
    assert 1 <= choice.k <= min(max_k, longest)
    assert choice.gain == pytest.approx(best)
    assert gain(choice.k) == pytest.approx(best)
    assert best >= MIN_GAIN - 1e-9


@MODERATE
@given(rate=rates, on=rates, further=rates, step=st.floats(0.0, 0.4), draft=st.floats(0.01, 0.5))
def test_where_drafts_stop_by_themselves_the_mean_round_is_weighed(
    rate: float, on: float, further: float, step: float, draft: float
) -> None:
    """Against every way the draft can end, summed up one by one."""
    outlook = Outlook(rates=(rate, rate, rate), going_on=(on, further))

    def gain(k: int) -> float:
        tokens = time = 0.0
        for stop in range(1, k + 1):
            reached = on * further ** (stop - 2) if stop > 1 else 1.0
            leaves = 1 - (on if stop == 1 else further) if stop < k else 1.0
            tokens += reached * leaves * sum(rate**n for n in range(stop + 1))
            time += reached * leaves * (stop * draft + 1 + step * stop)
        return tokens / time

    costs = costs_of(draft=draft, step=step).nearest(0)
    arm = best_arm(LAYERS, outlook, costs, 6)
    assert arm.gain == pytest.approx(max(gain(k) for k in range(1, 7)))
    assert arm.gain == pytest.approx(gain(arm.k))
    exact = best_arm(LAYERS, outlook, costs, 6, exactly=True)
    assert (exact.k, exact.gain) == (6, pytest.approx(gain(6)))


def test_a_better_draft_is_longer_and_a_dearer_one_shorter() -> None:
    def k_at(alpha: float, draft: float) -> int:
        return One(costs_of(draft=draft), {(LAYERS, 0): alpha}).choose({LAYERS: 0}).k

    by_rate = [k_at(alpha, 0.1) for alpha in (0.6, 0.7, 0.8, 0.9, 0.95)]
    by_cost = [k_at(0.9, draft) for draft in (0.02, 0.05, 0.1, 0.2, 0.4)]
    assert by_rate == sorted(by_rate)
    assert by_rate[0] < by_rate[-1]
    assert by_cost == sorted(by_cost, reverse=True)
    assert by_cost[0] > by_cost[-1]


def test_the_best_of_several_routes_drafts_and_the_others_are_told() -> None:
    one = One(costs_of(draft=0.05), {("copy", 1): 0.5, ("copy", 4): 0.95, (LAYERS, 0): 0.8})
    assert one.choose({"copy": 1, LAYERS: 0}).route == LAYERS
    choice = one.choose({"copy": 4, LAYERS: 0})
    assert choice.route == "copy"
    assert [arm.route for arm in choice.alternatives] == [LAYERS, "plain"]
    assert choice.arm.gain > choice.alternatives[0].gain > 1
    assert choice.alternatives[1].gain == 1


@pytest.mark.parametrize("longest", [0, -1])
def test_with_no_token_to_draft_it_is_plain(longest: int) -> None:
    choice = One(costs_of(), {("copy", 0): 0.9}).choose({"copy": 0}, longest)
    assert (choice.route, choice.k, choice.reason) == ("plain", 0, "the last token")


def test_with_nothing_on_offer_it_is_plain() -> None:
    choice = One(costs_of(), {("copy", 0): 0.9}).choose({})
    assert (choice.route, choice.k, choice.reason) == ("plain", 0, "nothing to copy")


@pytest.mark.parametrize("k", [1, 2, 5, 8, 32])
def test_a_pinned_k_is_kept_however_bad_it_is(k: int) -> None:
    one = One(costs_of(draft=3.0), {(LAYERS, 0): 0.01}, pinned_k=k, proven=False)
    for _ in range(20):
        choice = one.choose({LAYERS: 0})
        assert (choice.route, choice.k) == (LAYERS, k)
        one.live[LAYERS, 0].test(0, kept=False)
        one.ran(choice)
    assert one.choose({LAYERS: 0}, longest=1).k == 1
    assert one.choose({}).route == "plain"


def test_a_pinned_k_goes_before_the_window() -> None:
    one = One(costs_of(), {("copy", 0): 0.9}, policy="window", pinned_k=7)
    assert one.choose({"copy": 0}).k == 7


def test_a_losing_route_rests_with_a_reason_that_names_it() -> None:
    one = One(costs_of(draft=0.8), {(LAYERS, 0): 0.3}, proven=False)
    choice = one.choose({LAYERS: 0}, longest=9, context=14_200)
    assert (choice.route, choice.k) == ("plain", 0)
    assert "14.2k" in choice.reason
    assert LAYERS in choice.reason
    assert "would cost" in choice.reason


def test_a_gain_below_three_percent_is_not_begun() -> None:
    """One side of the border and the other: E(2) = 1.75 at α = ½."""
    for ratio, route in ((1.75 / 1.02, "plain"), (1.75 / 1.04, "copy")):
        costs = costs_of()
        costs.buckets[0].passes = [1.0, 9.0, ratio, 9.0]
        choice = One(costs, {("copy", 0): 0.5}, max_k=2, proven=False).choose({"copy": 0})
        assert choice.route == route
        if route == "plain":
            assert "would win only 2 %" in choice.reason


def test_a_gain_below_three_percent_is_kept_up_until_it_is_a_loss() -> None:
    costs = costs_of()
    costs.buckets[0].passes = [1.0, 9.0, 1.7, 9.0]
    one = One(costs, {("copy", 0): 0.5}, max_k=2, proven=False)
    one.ran(one.choose({"copy": 0}))
    assert one.choose({"copy": 0}).route == "plain"
    one.ran(Choice(route="copy", k=2, reason=""))
    assert one.choose({"copy": 0}).route == "copy"
    costs.buckets[0].passes[2] = 1.76
    assert one.choose({"copy": 0}).route == "copy", "the arm is worked out when something changes"
    one.live["copy", 0].changes += 1
    assert one.choose({"copy": 0}).route == "plain"


def test_one_drafted_token_may_pay() -> None:
    """Not under the policy `window`, which never drafts fewer than two."""
    costs = costs_of()
    costs.buckets[0].passes = [1.0, 1.0, 9.0]
    choice = One(costs, {("copy", 0): 0.5}).choose({"copy": 0})
    assert (choice.route, choice.k) == ("copy", 1)
    windowed_ = One(costs, {("copy", 0): 0.5}, policy="window")
    choice = windowed_.choose({"copy": 0}, longest=1)
    assert choice.route == "plain"
    assert f"below {MIN_K}" in choice.reason


def test_a_route_without_a_success_starts_short_and_grows_with_what_held() -> None:
    one = One(costs_of(step=0.01), {("copy", 0): 0.95}, proven=False)
    seen = []
    for _ in range(4):
        choice = one.choose({"copy": 0})
        seen.append(choice.k)
        one.ran(choice, accepted=choice.k)
    assert seen == [FIRST_K, FIRST_K * GROWTH, 32, 32]


def test_what_can_be_learned_for_nothing_is_never_probed() -> None:
    one = One(costs_of(step=0.9), {("copy", 0): 0.1}, proven=False)
    for _ in range(2000):
        choice = one.choose({"copy": 0})
        assert (choice.route, choice.probe) == ("plain", False)
        one.ran(choice)


@pytest.mark.parametrize("draft", [0.1, 0.4, 0.8])
def test_probing_takes_no_more_than_its_share_at_any_time(draft: float) -> None:
    one = One(costs_of(draft=draft), {(LAYERS, 0): 0.02}, proven=False)
    spent = probed = 0.0
    probes = 0
    for _ in range(3000):
        choice = one.choose({LAYERS: 0})
        ms = UNIT_MS * (draft + 1.05 if choice.k else 1)
        one.ran(choice, ms=ms)
        spent += ms
        if choice.probe:
            assert (choice.route, choice.k, choice.reason) == (LAYERS, 1, "probe")
            probes += 1
            probed += ms
            assert probed <= PROBE_SHARE * spent + 1e-6
    assert probes > 5


def test_what_could_not_pay_if_all_held_is_not_probed() -> None:
    one = One(costs_of(draft=1.2), {(LAYERS, 0): 0.02}, proven=False)
    for _ in range(2000):
        choice = one.choose({LAYERS: 0})
        assert not choice.probe
        one.ran(choice)


def test_of_two_resting_routes_the_one_that_waited_longer_is_probed() -> None:
    costs = costs_of(draft=0.5)
    costs.buckets[0].drafts["exit_head"] = costs.buckets[0].drafts[LAYERS]
    one = One(costs, {(LAYERS, 0): 0.02, ("exit_head", 0): 0.02}, proven=False)
    probed = []
    for _ in range(2000):
        choice = one.choose({LAYERS: 0, "exit_head": 0})
        one.ran(choice, ms=UNIT_MS * (1.55 if choice.k else 1))
        if choice.probe:
            probed.append(choice.route)
    assert len(probed) > 5
    assert all(a != b for a, b in itertools.pairwise(probed))


def test_a_probe_that_wins_brings_the_route_back() -> None:
    one = One(costs_of(draft=0.1), {(LAYERS, 0): 0.05}, proven=False)
    tokens = 0
    while tokens < 10_000:
        choice = one.choose({LAYERS: 0})
        if choice.k and not choice.probe:
            break
        if choice.probe:
            one.live[LAYERS, 0].test(0, kept=True)
        one.ran(choice, accepted=choice.k)
        tokens += choice.k + 1
    assert tokens < 1500
    assert choice.gain >= MIN_GAIN


def test_where_plain_was_not_seen_for_long_it_is_timed_once() -> None:
    one = One(costs_of(draft=0.4), {(LAYERS, 0): 0.7})
    reasons = []
    for _ in range(3 * STALE_ROUNDS):
        choice = one.choose({LAYERS: 0})
        one.ran(choice)
        reasons.append(choice.reason if not choice.k else "")
    told = [at for at, reason in enumerate(reasons) if reason]
    assert 1 <= len(told) <= 2
    assert told[0] >= STALE_ROUNDS - 1
    assert "what a plain round takes" in reasons[told[0]]


def test_a_sure_gain_is_not_interrupted() -> None:
    one = One(costs_of(), {("copy", 0): 0.95})
    for _ in range(3 * STALE_ROUNDS):
        choice = one.choose({"copy": 0})
        assert choice.route == "copy"
        one.ran(choice, accepted=5)


def test_context_buckets_are_kept_apart() -> None:
    """The same route drafts where its pass is cheap and rests where it is dear."""
    costs = costs_of(step=0.05, buckets=(0, 7))
    costs.buckets[7].passes = [1.0 + 2.0 * rows for rows in range(33)]
    one = One(costs, {("copy", 0): 0.8})
    assert one.choose({"copy": 0}, 9).route == "copy"
    long = one.choose({"copy": 0}, 9, context=20_000)
    assert long.route == "plain"
    assert "20.0k" in long.reason
    assert one.choose({"copy": 0}, 9).route == "copy"


def windowed() -> One:
    return One(costs_of(step=0.0), {("copy", 0): 1.0}, policy="window", proven=False)


def feed_window(one: One, kept: int, *, of: int = WINDOW) -> None:
    """A full window of tests of which `kept` were accepted, the rejected ones spread evenly."""
    done = 0
    for test in range(1, of + 1):
        accepted = round(kept * test / of) > done
        done += accepted
        one.ran(Choice(route="copy", k=1, reason=""), accepted=int(accepted))


def window_k(one: One) -> int:
    """The k it would draft with; the acceptance record is told nothing."""
    return one.choose({"copy": 0}).k


@pytest.mark.parametrize(
    ("kept", "step"), [(64, 1), (55, 1), (54, 0), (50, 0), (45, 0), (44, -1), (40, -1)]
)
def test_the_window_steps_at_its_borders(kept: int, step: int) -> None:
    """55 of 64 is above 0.85, 54 is not; 45 is above 0.70, 44 is not."""
    one = windowed()
    before = window_k(one)
    feed_window(one, kept)
    assert window_k(one) - before == step


def test_the_window_waits_until_it_is_full() -> None:
    one = windowed()
    before = window_k(one)
    feed_window(one, 63, of=63)
    assert window_k(one) == before
    feed_window(one, 1, of=1)
    assert window_k(one) == before + 1


def test_after_a_step_the_window_starts_afresh() -> None:
    one = windowed()
    before = window_k(one)
    feed_window(one, 64)
    feed_window(one, 63, of=63)
    assert window_k(one) == before + 1


def test_between_the_borders_the_window_slides() -> None:
    one = windowed()
    before = window_k(one)
    feed_window(one, 50)
    feed_window(one, 30, of=30)  # the oldest tests leave as these come
    assert window_k(one) == before + 1


def test_the_window_stays_from_two_to_eight() -> None:
    one = windowed()
    for _ in range(12):
        feed_window(one, 64)
    assert window_k(one) == 8
    for _ in range(12):
        feed_window(one, 44)
    assert window_k(one) == 2


def test_a_window_bounds_k_by_what_is_wanted_too() -> None:
    assert windowed().choose({"copy": 0}, longest=3).k == 3
