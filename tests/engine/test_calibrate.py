"""Costs measured with real rounds of a random model, and when they are measured anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine.cache import KVCache
from engine.calibrate import FILES_KEPT, costs_of, key_of
from engine.config import MAX_DRAFT_TOKENS
from engine.cost_arms import CONTEXTS
from engine.costs import CostTable, bucket_of
from engine.draft.contract import Draft, Drafter
from engine.draft.copy import CopyDrafter
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.head_file import Head
from engine.draft.layer_skip import LayerSkipDrafter
from engine.model import Model
from engine.pretend import Stage
from engine.row import Row

from .tiny import tiny_model
from .tiny_heads import pruned_head, random_head

DIGEST = "d" * 64


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model(context=256)


def drafters(model: Model, exit_layer: int = 3) -> list[Drafter]:
    return [CopyDrafter(model.device), LayerSkipDrafter(model, exit_layer)]


def costs(
    model: Model,
    of: Sequence[Drafter],
    folder: Path | None = None,
    digest: str = DIGEST,
    calm: Callable[[Stage], bool] = lambda _: False,
) -> CostTable:
    """Costs on a machine that is busy unless said otherwise: then nothing is measured again."""
    return costs_of(model, lambda _: of, folder=folder, digest=digest, calm=calm)


def only_file(folder: Path) -> Path:
    (file,) = folder.glob("costs-*.json")
    return file


def test_every_width_and_draft_length_has_a_cost(model: Model) -> None:
    table = costs(model, drafters(model))
    found = table.nearest(bucket_of(CONTEXTS[0]))
    assert found.unit_ms > 0
    assert found.passes[0] == 1.0
    assert len(found.passes) == len(found.rests["layer_skip"]) == MAX_DRAFT_TOKENS + 1
    assert len(found.drafts["layer_skip"]) == MAX_DRAFT_TOKENS
    assert set(found.drafts) == {"layer_skip"}
    assert all(ratio > 0 for ratio in (*found.passes, *found.drafts["layer_skip"]))
    assert found.draft_ratio("copy", 5) == 0


def test_what_was_measured_is_read_back_and_brought_up_to_date(
    model: Model, tmp_path: Path
) -> None:
    first = costs(model, drafters(model), tmp_path)
    kept = json.loads(only_file(tmp_path).read_bytes())
    again = costs(model, drafters(model), tmp_path)
    assert json.loads(only_file(tmp_path).read_bytes()) == kept, "it was not measured again"
    at = bucket_of(CONTEXTS[0])
    assert again.nearest(at).passes == pytest.approx(first.nearest(at).passes)
    assert again.nearest(at).rests == first.nearest(at).rests
    assert again.unit_ms(100) != first.unit_ms(100)


def test_another_model_is_measured_for_itself(model: Model, tmp_path: Path) -> None:
    for digest in ("a" * 64, "b" * 64):
        table = costs(model, drafters(model), tmp_path, digest)
        assert digest in table.key
    assert len(list(tmp_path.glob("costs-*.json"))) == 2


def test_the_key_names_model_device_threads_and_versions(model: Model) -> None:
    key = key_of(model, DIGEST)
    assert DIGEST in key
    assert "cpu" in key
    assert " threads" in key
    assert "torch 2." in key
    assert "sspec-assist " in key


def test_costs_of_another_key_are_measured_anew(model: Model, tmp_path: Path) -> None:
    """The name of the file is a short hash; what it holds for stands in it."""
    costs(model, drafters(model), tmp_path)
    file = only_file(tmp_path)
    changed = json.loads(file.read_bytes()) | {"key": "another"}
    changed["buckets"]["0"]["passes"][1] = 77.0
    file.write_text(json.dumps(changed))
    table = costs(model, drafters(model), tmp_path)
    assert table.nearest(0).passes[1] < 70
    assert json.loads(file.read_bytes())["key"] == key_of(model, DIGEST)


@pytest.mark.parametrize("content", [b"", b"{", b'{"buckets": {}}', b'{"buckets": 3}'])
def test_a_damaged_file_is_measured_anew(content: bytes, model: Model, tmp_path: Path) -> None:
    costs(model, drafters(model), tmp_path)
    file = only_file(tmp_path)
    file.write_bytes(content)
    table = costs(model, drafters(model), tmp_path)
    assert table.plain_tokens_per_s(0) > 0
    assert json.loads(file.read_bytes())["buckets"]


def test_a_route_of_another_shape_is_measured_and_the_rest_is_kept(
    model: Model, tmp_path: Path
) -> None:
    costs(model, drafters(model, 3), tmp_path)
    file = only_file(tmp_path)
    marked = json.loads(file.read_bytes())
    marked["buckets"]["0"]["passes"][1] = 7.0
    marked["buckets"]["0"]["drafts"]["layer_skip"][0] = 55.0
    file.write_text(json.dumps(marked))
    table = costs(model, drafters(model, 1), tmp_path)
    assert table.nearest(0).passes[1] == 7.0
    assert table.nearest(0).drafts["layer_skip"][0] < 50
    assert json.loads(file.read_bytes())["shapes"] == table.shapes


def test_costs_of_a_head_are_those_of_its_neurons_and_ids(model: Model) -> None:
    def key(head: Head) -> str:
        return ExitHeadDrafter(model, head).cost_key

    whole = random_head(model)
    keys = {
        key(whole), key(pruned_head(whole, model)), key(random_head(model, vocab=64)),
        key(random_head(model, jump=2)), key(random_head(model, first=2)),
        key(pruned_head(whole, model, kept=0, front=64)), key(pruned_head(whole, model, front=64)),
    }  # fmt: skip
    assert len(keys) == 7
    again = pruned_head(random_head(model, seed=1), model)
    assert key(again) == key(pruned_head(whole, model)), "other weights take as long"
    assert key(pruned_head(whole, model, kept=128)) == key(whole)
    assert "with 64" in key(again)


@pytest.mark.parametrize("change", ["neurons", "front", "ids"])
def test_a_head_of_another_cost_is_measured_and_the_rest_is_kept(
    model: Model, tmp_path: Path, change: str
) -> None:
    head = random_head(model)
    new = {
        "neurons": pruned_head(head, model),
        "front": pruned_head(head, model, kept=0, front=64),
        "ids": random_head(model, vocab=32),
    }[change]
    first = [*drafters(model), ExitHeadDrafter(model, head)]
    costs(model, first, tmp_path)
    file = only_file(tmp_path)
    marked = json.loads(file.read_bytes())
    bucket = marked["buckets"]["0"]
    bucket["passes"][1] = 7.0
    for route in ("layer_skip", "exit_head"):
        bucket["drafts"][route][0] = 555.0
    file.write_text(json.dumps(marked))
    same = costs(model, first, tmp_path)
    assert same.nearest(0).drafts["exit_head"][0] == 555.0
    now = [*drafters(model), ExitHeadDrafter(model, new)]
    table = costs(model, now, tmp_path)
    assert table.nearest(0).passes[1] == 7.0
    assert table.nearest(0).drafts["layer_skip"][0] == 555.0
    assert table.nearest(0).drafts["exit_head"][0] < 500
    assert json.loads(file.read_bytes())["shapes"]["exit_head"] == now[-1].cost_key


def test_a_head_that_leaves_nothing_to_take_over_costs_whole_passes(
    model: Model, tmp_path: Path
) -> None:
    head = random_head(model, first=2)
    for one in (head, pruned_head(head, model, front=64)):
        drafter = ExitHeadDrafter(model, one)
        table = costs(model, [*drafters(model), drafter], tmp_path)
        assert ("exit_head" in table.nearest(0).rests) == bool(drafter.reusable_layers)
        assert "layer_skip" in table.nearest(0).rests
    assert not drafter.reusable_layers


class Seen(LayerSkipDrafter):
    """Notes where it drafts."""

    def __init__(self, model: Model, exit_layer: int, seen: set[tuple[int, int]]) -> None:
        super().__init__(model, exit_layer)
        self._seen = seen

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        self._seen.add((self.reusable_layers, len(row.tokens) - 1))
        return super().propose(row, k, cache)


def test_each_context_length_has_the_costs_of_its_own_exit() -> None:
    model, seen = tiny_model(context=1200), set[tuple[int, int]]()

    def at(context: int) -> list[Drafter]:
        return [Seen(model, 1 if context < 1000 else 3, seen)]

    table = costs_of(model, at, folder=None, digest=DIGEST, calm=lambda _: False)
    assert seen == {(1, 128), (3, 1024)}
    assert table.shapes == {"layer_skip": "the first 1 layers, later the first 3 layers"}


def test_old_files_are_forgotten(tmp_path: Path) -> None:
    model = tiny_model(context=64)
    for at in range(FILES_KEPT + 2):
        costs(model, drafters(model), tmp_path, f"{at}" * 64)
    assert len(list(tmp_path.glob("costs-*.json"))) == FILES_KEPT


def test_a_folder_that_cant_be_written_costs_nothing_but_time(model: Model, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    table = costs(model, drafters(model), file / "under")
    assert table.plain_tokens_per_s(0) > 0


@pytest.mark.parametrize("reusable", [0, 1, 3])
@pytest.mark.parametrize("rows", [1, 2, 5, 33])
def test_pretended_rounds_leave_the_row_as_it_was(model: Model, rows: int, reusable: int) -> None:
    stage = Stage(model=model, cache=model.new_cache(1), drafters=drafters(model))
    stage.fill(100)
    assert stage.rest_ms(100, rows, reusable) > 0
    assert stage.cache.lengths[0] == 100
    assert stage.draft_ms(100, drafters(model)[1], 3) > 0
    assert stage.cache.lengths[0] == 100


def test_a_table_of_a_cache_too_short_for_the_usual_contexts(model: Model) -> None:
    short = tiny_model(context=64)
    cache: KVCache = short.new_cache(1)
    assert cache.slots < CONTEXTS[0]
    table = costs(short, drafters(short))
    assert isinstance(table, CostTable)
    assert list(table.buckets) == [0]
