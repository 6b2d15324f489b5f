"""Costs that were measured while the machine had other work, and how that is known."""

from __future__ import annotations

import json
import time
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from engine.calibrate import is_calm
from engine.model import Model
from engine.pretend import Stage

from .test_calibrate import costs, drafters, only_file
from .tiny import tiny_model


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model(context=180)


def mark(file: Path, ratio: float = 7.0) -> None:
    """Write what can't have been measured, to see whether it is measured again."""
    kept = json.loads(file.read_bytes())
    kept["buckets"]["0"]["passes"][1] = ratio
    file.write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("then", "now", "again"),
    [(False, True, True), (False, False, False), (True, True, False), (True, False, False)],
)
def test_costs_of_a_busy_machine_are_measured_again_on_a_calm_one(
    model: Model, tmp_path: Path, then: bool, now: bool, again: bool
) -> None:
    first = costs(model, drafters(model), tmp_path, calm=lambda _: then)
    file = only_file(tmp_path)
    assert first.busy is json.loads(file.read_bytes())["busy"] is not then
    mark(file)
    table = costs(model, drafters(model), tmp_path, calm=lambda _: now)
    assert (table.nearest(0).passes[1] != 7.0) is again
    assert table.busy is json.loads(file.read_bytes())["busy"] is not (then or now)
    mark(file)
    assert costs(model, drafters(model), tmp_path).nearest(0).passes[1] == 7.0


@pytest.mark.parametrize("answers", [(True, False), (False, True), (False, False)])
def test_a_machine_that_was_calm_for_a_part_of_the_time_was_busy(
    model: Model, tmp_path: Path, answers: tuple[bool, bool]
) -> None:
    found = iter(answers)
    assert costs(model, drafters(model), tmp_path, calm=lambda _: next(found)).busy


def test_a_start_with_costs_of_a_calm_machine_does_not_look_at_it(
    model: Model, tmp_path: Path
) -> None:
    costs(model, drafters(model), tmp_path, calm=lambda _: True)
    asked = list[Stage]()

    def looked(stage: Stage) -> bool:
        asked.append(stage)
        return True

    costs(model, drafters(model), tmp_path, calm=looked)
    assert not asked


@pytest.mark.parametrize("calm", [True, False])
def test_a_route_that_was_measured_on_a_busy_machine_makes_the_table_so(
    model: Model, tmp_path: Path, calm: bool
) -> None:
    costs(model, drafters(model, 3), tmp_path, calm=lambda _: True)
    mark(only_file(tmp_path))
    table = costs(model, drafters(model, 1), tmp_path, calm=lambda _: calm)
    assert table.nearest(0).passes[1] == 7.0, "the rest was kept"
    assert table.busy is json.loads(only_file(tmp_path).read_bytes())["busy"] is not calm


def test_costs_from_before_anyone_looked_are_taken_as_they_are(
    model: Model, tmp_path: Path
) -> None:
    costs(model, drafters(model), tmp_path)
    file = only_file(tmp_path)
    mark(file)
    kept = json.loads(file.read_bytes())
    del kept["busy"]
    file.write_text(json.dumps(kept))
    table = costs(model, drafters(model), tmp_path, calm=lambda _: True)
    assert table.nearest(0).passes[1] == 7.0


class Clock:
    """A machine on which rounds get this share of all their threads."""

    def __init__(self, patch: pytest.MonkeyPatch, share: float, threads: int) -> None:
        self.wall, self.used, self.rounds = 100.0, 5.0, 0
        self._gets = share * threads
        patch.setattr(time, "perf_counter", lambda: self.wall)
        patch.setattr(time, "process_time", lambda: self.used)
        patch.setattr(torch, "get_num_threads", lambda: threads)

    def rest_ms(self) -> float:
        self.rounds += 1
        self.wall += 0.01
        self.used += 0.01 * self._gets
        return 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds(Stage):
    """A stage whose rounds are a clock's."""

    clock: Clock

    def rest_ms(self, context: int, rows: int, reusable: int = 0) -> float:
        assert self.cache.lengths[0] == context
        assert rows == 1
        return self.clock.rest_ms()


def rounds(model: Model, clock: Clock) -> Rounds:
    return Rounds(model=model, cache=model.new_cache(1), drafters=(), clock=clock)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(
    ("share", "calm"), [(0.02, False), (0.44, False), (0.7, False), (0.8, True), (0.98, True)]
)
def test_a_machine_is_calm_where_rounds_get_their_processors(
    model: Model, monkeypatch: pytest.MonkeyPatch, share: float, threads: int, calm: bool
) -> None:
    clock = Clock(monkeypatch, share, threads)
    stage = rounds(model, clock)
    assert is_calm(stage) is calm
    assert stage.cache.lengths[0] == 0
    assert 0.2 < clock.rounds * 0.01 < 0.5


def test_another_device_is_not_asked(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.0, 2)
    stage = rounds(model, clock)
    elsewhere = copy(model)
    elsewhere.device = torch.device("cuda")
    assert is_calm(replace(stage, model=elsewhere))
    assert not clock.rounds


def test_real_rounds_leave_the_row_as_it_was(model: Model) -> None:
    stage = Stage(model=model, cache=model.new_cache(1), drafters=drafters(model))
    is_calm(stage)
    assert stage.cache.lengths[0] == 0
