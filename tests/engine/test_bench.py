"""The bench times arms fairly, counts what they did and leaves out what can't be run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.bench import Arm, CaseTime, Plan, RouteArm, Told, bench, in_turn
from engine.bench_results import ArmResult, Rounds, Run, arm_result, kind_results
from engine.cases import Case, Kind, LeftOut
from engine.protocol import ChatPrompt, RequestError, SamplingParams, Turn
from tests.engine.tiny_session import tiny_session

GREEDY = Plan(repeats=2, sampling=SamplingParams())


def case_of(name: str = "one", kind: Kind = "edit", text: str = "one two one two one") -> Case:
    prompt = ChatPrompt(turns=(Turn(role="user", content=text),))
    return Case(name=name, kind=kind, prompt=prompt, max_tokens=12)


class PacedArm:
    """Decodes 10 tokens a run in the times it is given, over and over."""

    def __init__(self, name: str, *milliseconds: float, log: list[str] | None = None) -> None:
        self.name, self._times, self._turn = name, milliseconds, 0
        self._log = log if log is not None else []
        self.refuses: set[str] = set()
        self.ends_after = 1 << 30
        self.seeds: list[int | None] = []

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        if case.name in self.refuses or self._turn >= self.ends_after:
            raise RequestError("no", f"{self.name} can't take {case.name}", "Leave it.")
        self._log.append(self.name)
        self.seeds.append(sampling.seed)
        self._turn += 1
        # The first run is the warm-up.
        ms = self._times[(self._turn - 2) % len(self._times)]
        return Run(prompt_tokens=5, output_tokens=10, decode_ms=ms, output=(1, 2))


def test_arms_take_turns_in_both_orders() -> None:
    log: list[str] = []
    arms: list[Arm] = [PacedArm("a", 1.0, log=log), PacedArm("b", 1.0, log=log)]
    bench(arms, [case_of()], replace(GREEDY, repeats=4), lambda _: None)
    assert "".join(log[2:]) == "abbabaab"  # after the two warm-ups
    three: list[Arm] = [PacedArm(name, 1.0) for name in "abc"]
    orders = ["".join(arm.name for arm in in_turn(three, repeat)) for repeat in range(6)]
    assert orders == ["abc", "cba", "bca", "acb", "cab", "bac"]
    assert sorted(order[0] for order in orders) == sorted("abcabc")


def test_ratios_are_formed_within_a_repeat() -> None:
    told: list[Told] = []
    # A minute twice as slow hits both arms: the ratio stays 2 throughout.
    arms: list[Arm] = [PacedArm("plain", 100.0, 200.0), PacedArm("auto", 50.0, 100.0)]
    bench(arms, [case_of()], GREEDY, told.append)
    plain, auto, seconds = told
    assert isinstance(plain, ArmResult)
    assert isinstance(auto, ArmResult)
    assert isinstance(seconds, CaseTime)
    assert (auto.times_plain.low, auto.times_plain.high) == (2.0, 2.0)
    assert plain.times_plain.median == 1.0
    assert auto.tokens_per_s.median == pytest.approx(150.0)
    assert (seconds.done, seconds.of) == (1, 1)


def test_what_can_not_be_run_is_named_and_the_rest_goes_on() -> None:
    plain, peer = PacedArm("plain", 1.0), PacedArm("peer", 1.0)
    plain.refuses, peer.refuses = {"two"}, {"three"}
    told: list[Told] = []
    cases = [case_of(name) for name in ("one", "two", "three")]
    found = bench([plain, peer], cases, GREEDY, told.append)
    left_out = [(one.case, one.arm) for one in told if isinstance(one, LeftOut)]
    assert left_out == [("two", None), ("three", "peer")]
    assert {name: list(runs) for name, (_, runs) in found.items()} == {
        "one": ["plain", "peer"],
        "three": ["plain"],
    }
    with pytest.raises(RequestError, match="none of the cases could be run: plain can't take two"):
        bench([plain], [cases[1]], GREEDY, told.append)


def test_an_arm_that_goes_away_in_the_middle_costs_only_its_own_figures() -> None:
    plain, peer = PacedArm("plain", 1.0), PacedArm("peer", 1.0)
    peer.ends_after = 2  # the warm-up and one run
    told: list[Told] = []
    found = bench([plain, peer], [case_of("one"), case_of("two")], GREEDY, told.append)
    left_out = [(one.case, one.arm) for one in told if isinstance(one, LeftOut)]
    assert left_out == [("one", "peer"), ("two", "peer")]
    assert {name: list(runs) for name, (_, runs) in found.items()} == {
        "one": ["plain"],
        "two": ["plain"],
    }
    assert [one.arm for one in told if isinstance(one, ArmResult)] == ["plain", "plain"]


def test_drawn_texts_get_a_seed_for_each_repeat_the_same_for_all_arms() -> None:
    arms = [PacedArm("plain", 1.0), PacedArm("auto", 1.0)]
    plan = Plan(repeats=3, sampling=SamplingParams(temperature=0.7, seed=5))
    told: list[Told] = []
    bench(arms, [case_of()], plan, told.append)
    assert arms[0].seeds[1:] == arms[1].seeds[1:] == [5, 6, 7]
    assert all(one.same_text is None for one in told if isinstance(one, ArmResult))


def test_the_length_is_the_case_s_own_unless_one_was_asked_for() -> None:
    assert GREEDY.of(case_of(), 0).max_tokens == 12
    assert replace(GREEDY, max_tokens=7).of(case_of(), 0).max_tokens == 7


def test_kinds_are_geometric_means_and_count_once_each() -> None:
    def runs(*milliseconds: float) -> list[Run]:
        return [Run(prompt_tokens=1, output_tokens=1, decode_ms=ms) for ms in milliseconds]

    found = {
        name: (case_of(name, kind), {"plain": runs(8.0, 8.0), "auto": runs(*times)})
        for name, kind, times in (
            ("a", "edit", (2.0, 2.0)),
            ("b", "edit", (8.0, 8.0)),
            ("c", "json", (16.0, 16.0)),
        )
    }
    edit, json, together = kind_results(found, "auto", "plain")
    assert (edit.kind, edit.cases, edit.worst_case, edit.worst) == ("edit", 2, "b", 1.0)
    assert edit.ratio == pytest.approx(2.0)  # √(4 · 1)
    assert json.ratio == pytest.approx(0.5)
    assert together.kind is None
    assert together.ratio == pytest.approx(1.0)  # √(2 · ½), not a mean over three cases
    assert kind_results(found, "auto", "llama.cpp") == []


def test_costs_are_relative_to_the_plain_runs_of_the_same_repeat() -> None:
    def ours(unit: float) -> Run:
        rounds = Rounds(
            rounds=4,
            drafting=2,
            drafted=6,
            tested=5,
            accepted=4,
            draft_ms=6 * 0.1 * unit,
            verify_ms=2 * 1.2 * unit,
            plain_ms=2 * unit,
            by_route={"copy": 2, "plain": 2},
        )
        return Run(prompt_tokens=1, output_tokens=8, decode_ms=5.5 * unit, rounds=rounds)

    def plain(unit: float) -> Run:
        return Run(prompt_tokens=1, output_tokens=8, decode_ms=8 * unit)

    runs = {"plain": [plain(10.0), plain(30.0)], "auto": [ours(10.0), ours(30.0)]}
    result = arm_result(case_of(), "auto", runs, base="plain", greedy=True)
    assert result.draft_cost == pytest.approx(0.1)
    assert result.verify_cost == pytest.approx(1.2)
    assert result.verify_rows == 4.0
    assert result.tokens_per_round == 2.0
    assert (result.tested, result.accepted) == (10, 8)
    assert result.draft_share == pytest.approx(0.6 / 5.5)
    assert result.verify_share == pytest.approx(4.4 / 5.5)
    assert result.other_share == pytest.approx(0.5 / 5.5)
    assert result.by_route == {"copy": 4, "plain": 4}


def test_our_own_routes_give_plain_decoding_s_text_and_tell_their_rounds() -> None:
    session = tiny_session()
    told: list[Told] = []
    arms = [RouteArm(session, "plain"), RouteArm(session, "copy")]
    bench(arms, [case_of()], GREEDY, told.append)
    plain, copy = (one for one in told if isinstance(one, ArmResult))
    assert plain.same_text
    assert copy.same_text
    assert plain.tested == 0
    assert plain.tokens_per_round == 1.0
    assert plain.output_tokens == copy.output_tokens == 12
    assert sum(copy.by_route.values()) > 0
