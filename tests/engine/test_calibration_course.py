"""A calibration from beginning to end over a random model: what it finds, what it leaves out where
time is short, and what is kept when it is stopped. Time passes when a stage is told, not by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from engine.calibration.agreement import TEMPERATURES
from engine.calibration.answers import LEAST_TOKENS, length, parted
from engine.calibration.course import Calibration
from engine.calibration.figures import verdicts
from engine.calibration.path_costs import path_costs
from engine.calibration.sketches import exit_layers, marks_for
from engine.draft.layer_skip import LayerSkipDrafter
from engine.loading import Loaded
from engine.pretend import Stage
from engine.profile import read_profile, save_profile
from engine.protocol import RequestError
from engine.train.answers import Question
from engine.train.samples import Marks, Sample, reread

from .tiny_heads import random_head
from .tiny_session import LAYERS, tiny_loaded

SECONDS = 6.0


@dataclass(slots=True)
class Told:
    """Hears the stages; the clock stands still but for what `jumps` says of one as it begins."""

    jumps: dict[str, float] = field(default_factory=dict)
    stop_at: str = ""
    stages: list[str] = field(default_factory=list)
    now: float = 0.0

    def tell(self, stage: str, share: float, note: str) -> None:
        self.stages.append(stage)
        key = f"{stage} {note}" if f"{stage} {note}" in self.jumps else stage
        self.now = max(self.now, SECONDS * self.jumps.get(key, 0.0))
        if self.stop_at and f"{stage} {note}".startswith(self.stop_at):
            raise KeyboardInterrupt

    def clock(self) -> float:
        return self.now


def questions(count: int = 4, tokens: int = 60) -> list[Question]:
    return [
        Question(
            ids=[5 + (7 * n + at) % 60 for at in range(20)],
            stop_ids=frozenset(),
            max_tokens=tokens,
            temperature=0.7 if n % 2 else 0.0,
        )
        for n in range(count)
    ]


def calibration(
    told: Told, asked: Sequence[Question] = (), loaded: Loaded | None = None
) -> Calibration:
    return Calibration(
        loaded or tiny_loaded(context=256),
        asked or questions(),
        minutes=SECONDS / 60,
        tell=told.tell,
        clock=told.clock,
    )


def test_a_whole_run_measures_all_there_is_and_is_kept(tmp_path: Path) -> None:
    told = Told()
    found, profile = calibration(told).run()
    assert (found.requests, found.asked, found.tokens) == (4, 4, 240)
    assert found.judged == 120
    assert [one.name for one in found.paths if one.exit_layer] == ["first 1", "first 2", "first 3"]
    assert [one.name for one in found.paths if not one.is_there] == ["first 1, from 2, fitted"]
    for one in found.paths:
        assert set(one.agreement) == set(TEMPERATURES)
        assert one.costs.keys() == {0}
    assert len(found.timed) == 4
    assert all(one.rounds and one.tokens_per_round >= 1 and one.c > 0 for one in found.timed)
    assert (found.left_out, found.seconds) == ((), 0.0)
    assert verdicts(found)
    assert list(dict.fromkeys(told.stages)) == [
        "the model answers",
        "judging early exits",
        "fitting jumps",
        "timing paths",
        "real rounds",
    ]
    assert profile.exit_layer_at(100) in {1, 2, 3}
    assert "layer_skip" in profile.agreement
    save_profile(profile, tmp_path)
    digest = tiny_loaded().weights_digest
    assert read_profile(tmp_path, digest, 99) == profile
    assert read_profile(tmp_path, "other", 99) is None


@pytest.mark.parametrize(
    ("jumps", "missing"),
    [
        ({"judging early exits": 0.65}, "jumps: there was no time"),
        ({"timing paths 128 tokens of context": 0.9}, "contexts from 1,024 tokens: no time"),
        ({"timing paths": 1.1}, "real rounds beside the prediction: no time"),
    ],
)
def test_what_there_is_no_time_for_is_left_out_and_named(
    jumps: dict[str, float], missing: str
) -> None:
    loaded = tiny_loaded(context=1100)
    found, profile = calibration(Told(jumps), loaded=loaded).run()
    assert missing in found.left_out
    assert [one.exit_layer for one in found.paths if one.exit_layer] == [1, 2, 3]
    assert profile.exit_layers
    assert found.seconds == pytest.approx(SECONDS * max(jumps.values()))


def test_answering_ends_at_its_share_of_the_time() -> None:
    told = Told({"the model answers 320 tokens": 0.45, "timing paths": 1.0})
    found, _ = calibration(told, questions(40)).run()
    assert (found.requests, found.asked, found.tokens) == (16, 40, 320)


def test_too_little_time_is_refused_with_what_would_do() -> None:
    with pytest.raises(RequestError, match=r"in 4 s the model answered 80 tokens") as raised:
        calibration(Told({"the model answers 80 tokens": 0.65})).run()
    assert raised.value.code == "too_little_time"
    assert "--minutes 0.3" in raised.value.hint


def test_too_little_text_is_refused() -> None:
    with pytest.raises(RequestError, match="4 requests gave 40 tokens") as raised:
        calibration(Told(), questions(tokens=10)).run()
    assert raised.value.code == "too_little_text"


def test_one_answer_is_not_both_fitted_to_and_judged_on() -> None:
    found, _ = calibration(Told(), questions(1, tokens=220)).run()
    assert found.left_out == ("jumps: one answer can't be both fitted and judged",)
    assert all(one.exit_layer for one in found.paths)


@pytest.mark.parametrize("stage", ["the model answers", "judging", "fitting", "timing paths 128"])
def test_stopped_before_anything_is_timed_there_is_nothing_to_keep(stage: str) -> None:
    run = calibration(Told(stop_at=stage))
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert run.kept is None


@pytest.mark.parametrize(
    ("stage", "buckets", "timed"),
    [
        ("timing paths 1,024", [0], False),
        ("real rounds request 1", [0, 3], False),
        ("real rounds request 2", [0, 3], True),
    ],
)
def test_stopped_later_it_keeps_what_there_is(stage: str, buckets: list[int], timed: bool) -> None:
    run = calibration(Told(stop_at=stage), loaded=tiny_loaded(context=1100))
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert run.kept is not None
    found, profile = run.kept
    assert found.buckets == buckets
    assert bool(found.timed) == timed
    assert profile.exit_layers.keys() == set(buckets)


@pytest.mark.parametrize(("first", "jump"), [(1, 2), (2, 3), (1, 3)])
def test_the_head_that_is_there_is_judged_wherever_it_lands(first: int, jump: int) -> None:
    loaded = tiny_loaded(context=256)
    head = random_head(loaded.model, first=first, jump=jump)
    found, profile = calibration(Told(), loaded=replace(loaded, head=head)).run()
    (own,) = [one for one in found.paths if one.name.startswith("head")]
    assert own.is_there
    assert own.layers == first + LAYERS - jump
    assert profile.agreement["exit_head"] == pytest.approx(three_of(own.agreement[0.0]))
    assert profile.head_vocab == loaded.architecture.vocab


def three_of(shares: tuple[float, ...]) -> tuple[float, ...]:
    return (*shares, *shares[-1:] * 3)[:3]


def test_exits_go_from_a_third_to_four_fifths_of_the_depth() -> None:
    for layers in range(2, 60):
        exits = exit_layers(layers)
        assert exits == sorted(set(exits))
        assert exits[0] >= 1
        assert exits[-1] < layers
        assert len(exits) <= 7
    assert exit_layers(28) == [8, 10, 13, 15, 17, 20, 22]
    marks = marks_for(28, None)
    assert {*exit_layers(28), 1, 2} == set(marks.firsts)
    assert marks.jumps == (22, 24, 26)


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    model = tiny_loaded(context=256).model
    marks = Marks(firsts=(1,), jumps=(2,), layers=LAYERS)
    cache = model.new_cache(1)
    return [reread(model, cache, [5 + n] * (30 + n), 10, marks) for n in range(9)]


@pytest.mark.parametrize("wanted", [1, 50, 1000])
def test_answers_are_parted_without_overlap(wanted: int, samples: list[Sample]) -> None:
    judges = parted(samples, wanted)
    assert len(judges.all) == len(samples)
    assert {id(one) for one in judges.all} == {id(one) for one in samples}
    assert judges.fitted
    assert judges.held_out
    judged = sum(map(length, judges.held_out))
    assert judged <= max(wanted + max(map(length, samples)), LEAST_TOKENS)


def test_costs_grow_with_what_is_done() -> None:
    loaded = tiny_loaded(context=256)
    stage = Stage(model=loaded.model, cache=loaded.model.new_cache(1), drafters=[])
    exits = {f"first {n}": LayerSkipDrafter(loaded.model, n) for n in (1, 2, 3)}
    costs = path_costs(stage, 100, exits, 0.0)
    one, two, three = (costs[f"first {n}"] for n in (1, 2, 3))
    assert one.unit_ms == two.unit_ms == three.unit_ms
    assert one.draft_ratio("layer_skip", 1) <= two.draft_ratio("layer_skip", 1)
    assert two.draft_ratio("layer_skip", 1) <= three.draft_ratio("layer_skip", 1)
    assert three.rest_ratio("layer_skip", 2) <= one.rest_ratio("layer_skip", 2)
    for each in (one, two, three):
        assert each.passes[0] == 1.0
        assert each.passes[:9] == sorted(each.passes[:9])
        assert each.draft_ratio("layer_skip", 1) <= each.draft_ratio("layer_skip", 3)
