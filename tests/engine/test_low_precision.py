"""The NF4 twin: exact whatever it says, loaded beside its model, refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engine.config import LoadSettings, Quant
from engine.draft.low_precision import NO_TWIN, LowPrecisionDrafter, Twin
from engine.draft.routes import drafters_for
from engine.loading import Loaded, load
from engine.model import Model
from engine.protocol import MemoryLimitError, RequestError, SamplingParams
from engine.row import Row
from engine.twin import with_twin

from .exact_law import distance
from .test_decode import PROMPT, generate, run_all
from .test_round_law import EVERYTHING, HOT, VOCAB, Bench, explore
from .tiny import new_row, tiny_architecture, tiny_model, tiny_tensors
from .tiny_checkpoints import random_model, save_folder

INT8 = LoadSettings(quant="int8", device="cpu", threads=1)


def quiet(stage: str, done: int, total: int) -> None:
    return None


def drafted(model: Model, twin: Model, row: Row, k: int) -> Any:
    drafter = LowPrecisionDrafter(twin)
    return run_all(model, row, {drafter.route: drafter}, k)


@pytest.mark.parametrize("quant", ["int8", "none"])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_greedy_is_bit_identical_to_plain(quant: Quant, k: int) -> None:
    model = tiny_model(quant)
    plain, plain_cache = generate(model, new_row(PROMPT, max_tokens=70), "plain", 0)
    text, cache = drafted(model, tiny_model("nf4"), new_row(PROMPT, max_tokens=70), k)
    assert text == plain
    length = cache.lengths[0]
    assert length == plain_cache.lengths[0]
    for ours, theirs in zip(cache.keys, plain_cache.keys, strict=True):
        assert torch.equal(ours[0, :, :length], theirs[0, :, :length])


def test_the_twin_is_mostly_right() -> None:
    row = new_row(PROMPT, max_tokens=60)
    drafted(tiny_model("none"), tiny_model("nf4"), row, 3)
    assert row.kinds.count("accepted") > 15


def test_penalty_is_applied_at_every_position() -> None:
    params = SamplingParams(repetition_penalty=1.7)
    model = tiny_model("int8")
    plain, _ = generate(model, new_row(PROMPT, params), "plain", 0)
    assert drafted(model, tiny_model("nf4"), new_row(PROMPT, params), 4)[0] == plain


def another(model: Model) -> LowPrecisionDrafter:
    """A twin of other weights altogether: it is often wrong."""
    arch = tiny_architecture(layers=3, vocab=VOCAB)
    tensors = tiny_tensors(arch, "none", seed=9, dtype=torch.float64)
    return LowPrecisionDrafter(Model(arch, tensors, context_tokens=64))


def test_two_tokens_follow_the_models_law() -> None:
    bench = Bench(EVERYTHING, another)
    found, wanted = bench.law(2, 2), bench.plain(2)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert distance(found, wanted) < 1e-9


def test_the_walked_rounds_keep_and_reject() -> None:
    bench = Bench(HOT, another)
    emitted = explore(lambda path: bench.round(path, 2, ()))
    for length in (1, 2, 3):
        assert sum(share for tokens, share in emitted.items() if len(tokens) == length) > 0.01


def test_it_is_on_offer_where_there_is_a_twin() -> None:
    model, twin = tiny_model("int8"), Twin(model=tiny_model("nf4"))
    named = drafters_for("low_precision", model, 2, twin=twin)
    assert [drafter.route for drafter in named] == ["low_precision"]
    assert "low_precision" in {d.route for d in drafters_for("auto", model, 2, twin=twin)}
    assert "low_precision" not in {d.route for d in drafters_for("auto", model, 2)}


@pytest.mark.parametrize(
    ("twin", "words"),
    [
        (NO_TWIN, "it was not loaded with this model"),
        (Twin(model=None, reason="this model runs in NF4 already"), "runs in NF4 already"),
    ],
)
def test_it_is_refused_with_a_sentence(twin: Twin, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        drafters_for("low_precision", tiny_model("nf4"), 2, twin=twin)
    assert refused.value.code == "no_route"
    assert "low_precision" in refused.value.message
    assert words in refused.value.message


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(random_model("qwen2"), tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def loaded_as(folder: Path, cache: Path, settings: LoadSettings) -> Loaded:
    return with_twin(load(folder, settings, cache, quiet), folder, settings, cache, quiet)


@pytest.mark.parametrize("wish", ["auto", "always"])
def test_the_twin_shares_the_embeddings(folder: Path, cache: Path, wish: Any) -> None:
    loaded = loaded_as(folder, cache, msgspec.structs.replace(INT8, twin=wish))
    twin = loaded.twin.model
    assert twin is not None
    assert twin.embedding.data_ptr() == loaded.model.embedding.data_ptr()
    assert twin.context_tokens == loaded.model.context_tokens
    assert twin.head.nbytes < loaded.model.head.nbytes


def test_a_model_of_32_bits_has_none(folder: Path, cache: Path) -> None:
    loaded = loaded_as(folder, cache, msgspec.structs.replace(INT8, quant="none", twin="always"))
    assert loaded.model.dtype == torch.float32
    assert loaded.twin.model is None
    assert "32 bits" in loaded.twin.reason


def test_it_says_the_same_as_the_model_loaded_in_nf4(folder: Path, cache: Path) -> None:
    twin = loaded_as(folder, cache, msgspec.structs.replace(INT8, twin="always")).twin.model
    alone = load(folder, msgspec.structs.replace(INT8, quant="nf4"), cache, quiet).model
    assert twin is not None
    ids = [*range(3, 40)]
    assert (
        generate(twin, new_row(ids), "plain", 0)[0] == generate(alone, new_row(ids), "plain", 0)[0]
    )


def test_nobody_pays_for_a_twin_that_was_not_asked_for(folder: Path, tmp_path: Path) -> None:
    loaded = loaded_as(folder, tmp_path / "c", INT8)
    assert loaded.twin is NO_TWIN
    assert list((tmp_path / "c").glob("*/weights.safetensors")) == [
        loaded.folder / "weights.safetensors"
    ]


def test_an_nf4_model_has_none(folder: Path, cache: Path) -> None:
    settings = msgspec.structs.replace(INT8, quant="nf4", twin="always")
    loaded = loaded_as(folder, cache, settings)
    assert loaded.twin.model is None
    assert loaded.twin.reason == "this model runs in NF4 already"
    assert "--quant int8" in loaded.twin.remedy


def test_without_memory_it_is_left_out_or_refused(folder: Path, cache: Path) -> None:
    loaded = load(folder, INT8, cache, quiet)
    vast = replace(loaded, architecture=msgspec.structs.replace(loaded.architecture, layers=10**7))
    auto = msgspec.structs.replace(INT8, twin="auto")
    found = with_twin(vast, folder, auto, cache, quiet)
    assert found.twin.model is None
    assert "does not fit" in found.twin.reason
    with pytest.raises(MemoryLimitError, match="NF4 twin"):
        with_twin(vast, folder, msgspec.structs.replace(INT8, twin="always"), cache, quiet)
