"""Loading converts once, keeps all or nothing, and starts warm without the heavy packages."""

from __future__ import annotations

import copy
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import pytest
import torch

from engine.checkpoint import FolderCheckpoint
from engine.config import LoadSettings
from engine.convert import _BYTES_PER_WEIGHT, _packed, convert, origin_of
from engine.converted import Origin, building, is_complete, read_weights
from engine.draft.head_file import file_in, save_head
from engine.families import architecture_of
from engine.loading import Loaded, _sizes, load
from engine.memory_plan import plan
from engine.protocol import MemoryLimitError, ModelError, RequestError
from engine.quant import pack
from engine.rotary import with_rotary

from .tiny_checkpoints import (
    DENSE,
    assert_same_logits,
    random_model,
    save_folder,
    save_gguf,
    split_logits,
)
from .tiny_heads import about, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

NF4 = LoadSettings(quant="nf4", device="cpu", threads=1)
STAGES = ("tokenizer", "weights", "saving")


def quiet(stage: str, done: int, total: int) -> None:
    return None


@pytest.fixture(scope="module")
def theirs() -> Any:
    return random_model("qwen2")


@pytest.fixture
def folder(theirs: Any, tmp_path: Path) -> Path:
    return save_folder(theirs, tmp_path / "m")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def contents(cache: Path) -> list[str]:
    entries = cache.iterdir() if cache.exists() else ()
    return sorted(entry.name for entry in entries if entry.name != ".lock")


def test_a_loaded_model_answers_as_the_checkpoint_does(
    theirs: Any, folder: Path, cache: Path
) -> None:
    loaded = load(folder, msgspec.structs.replace(NF4, quant="none"), cache, quiet)
    assert (loaded.quant, loaded.device, loaded.context_tokens) == ("none", "cpu", 256)
    assert_same_logits(loaded.model, theirs)
    assert loaded.text.decode(loaded.text.encode_plain("x = 1")) == "x = 1"


def test_a_gguf_is_loaded_by_its_own_path_or_by_its_folders(theirs: Any, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    file = save_gguf(theirs, tmp_path / "m" / "m.gguf")
    first = load(file, NF4, tmp_path / "cache", quiet)
    second = load(file.parent, NF4, tmp_path / "cache", quiet)
    assert first.converted_now
    assert not second.converted_now
    assert first.folder == second.folder


def rounded(model: Any, quant: str) -> Any:
    """A copy of the model with every matrix quantized and written out again."""
    from bitsandbytes import functional as bnb

    model = copy.deepcopy(model)
    for name, weight in model.named_parameters():
        if weight.ndim < 2 or "embed" in name:
            continue
        if quant == "nf4":
            codes, state = bnb.quantize_4bit(weight.data, blocksize=64, quant_type="nf4")
            weight.data = bnb.dequantize_4bit(codes, state)
        else:
            scale = weight.data.abs().amax(dim=1, keepdim=True) / 127
            weight.data = (weight.data / scale).round() * scale
    return model


@pytest.mark.parametrize("quant", ["nf4", "int8"])
def test_a_quantized_model_is_the_checkpoint_with_rounded_matrices(
    quant: Any, theirs: Any, folder: Path, cache: Path
) -> None:
    loaded = load(folder, msgspec.structs.replace(NF4, quant=quant), cache, quiet)
    ids = torch.arange(3, 93)
    with torch.inference_mode():
        expected = rounded(theirs, quant)(ids[None]).logits[0].flatten()
    found = split_logits(loaded.model, ids).float().flatten()
    # Activations are bf16 here and float32 there.
    assert torch.corrcoef(torch.stack((found, expected)))[0, 1] > 0.998


def test_the_second_load_reads_what_the_first_one_made(folder: Path, cache: Path) -> None:
    first = load(folder, NF4, cache, quiet)
    made = (first.folder / "weights.safetensors").stat().st_mtime_ns
    stages: list[str] = []
    second = load(folder, NF4, cache, lambda stage, *_: stages.append(stage))
    assert (first.converted_now, second.converted_now) == (True, False)
    assert set(stages) == {"reading"}
    assert (second.folder / "weights.safetensors").stat().st_mtime_ns == made
    ids = torch.arange(3, 33)
    assert torch.equal(split_logits(first.model, ids), split_logits(second.model, ids))


def test_what_changes_the_result_is_in_the_folders_name() -> None:
    origin = Origin(source="a/m.gguf", digest="d", quant="nf4", device="cpu", layout="tiles")
    changes: list[dict[str, Any]] = [
        {},
        {"digest": "e"},
        {"quant": "int8"},
        {"device": "cuda"},
        {"layout": "rows"},
        {"format": 0},
    ]
    names = {msgspec.structs.replace(origin, **change).folder_name for change in changes}
    assert len(names) == len(changes)
    assert all(name.startswith("m-") for name in names)


def test_settings_that_do_not_change_weights_share_a_conversion(folder: Path, cache: Path) -> None:
    first = load(folder, NF4, cache, quiet)
    other = msgspec.structs.replace(NF4, context_tokens=128, threads=1, rows=1)
    second = load(folder, other, cache, quiet)
    assert second.folder == first.folder
    assert second.context_tokens == 128


def test_progress_counts_every_stage_to_its_end(folder: Path, cache: Path) -> None:
    last: dict[str, tuple[int, int]] = {}

    def note(stage: str, done: int, total: int) -> None:
        assert done >= last.get(stage, (0, 0))[0]
        last[stage] = (done, total)

    load(folder, NF4, cache, note)
    assert list(last) == [*STAGES, "reading"]
    assert all(done == total > 0 for done, total in last.values())


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", [KeyboardInterrupt, ValueError])
def test_an_interrupted_conversion_leaves_nothing(
    stage: str, how: type[BaseException], folder: Path, cache: Path
) -> None:
    calls = {"all": 0}

    def count(at: str, done: int, total: int) -> None:
        calls["all"] += at == stage

    load(folder, NF4, cache / "other", count)
    assert calls["all"] >= 2
    for stop_at in {1, calls["all"] // 2, calls["all"]}:
        left = stop_at

        def interrupt(at: str, done: int, total: int) -> None:
            nonlocal left
            left -= at == stage
            if at == stage and left == 0:
                raise how

        with pytest.raises(how):
            load(folder, NF4, cache, interrupt)
        assert contents(cache) == ["other"]
    assert load(folder, NF4, cache, quiet).converted_now


def test_an_interruption_while_reading_keeps_the_conversion(folder: Path, cache: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "reading":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(folder, NF4, cache, interrupt)
    assert not load(folder, NF4, cache, quiet).converted_now


def test_what_a_killed_process_left_is_removed_and_a_living_one_keeps_its_own(
    folder: Path, cache: Path
) -> None:
    program = (
        "import os, sys; from pathlib import Path; from engine.converted import building\n"
        "with building(Path(sys.argv[1])) as folder: (folder / 'w').touch(); os._exit(9)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(cache / "m")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert killed.returncode == 9
    assert len(contents(cache)) == 1
    with building(cache / "other") as alive:
        loaded = load(folder, NF4, cache, quiet)
        assert contents(cache) == sorted([alive.name, loaded.folder.name])


@pytest.mark.parametrize("file", ["weights.safetensors", "architecture.json", "origin.json"])
@pytest.mark.parametrize("spoil", [Path.unlink, lambda f: f.write_bytes(f.read_bytes()[:-1])])
def test_a_spoilt_conversion_is_made_again(
    file: str, spoil: Callable[[Path], Any], folder: Path, cache: Path
) -> None:
    first = load(folder, NF4, cache, quiet)
    spoil(first.folder / file)
    again = load(folder, NF4, cache, quiet)
    assert again.converted_now
    assert contents(cache) == [first.folder.name]
    assert is_complete(again.folder)


def test_two_conversions_at_once_both_end_with_the_same_model(folder: Path, cache: Path) -> None:
    together = threading.Barrier(2, timeout=30)
    results: list[Loaded] = []

    def meet(stage: str, done: int, total: int) -> None:
        if stage == "saving" and done == total:
            together.wait()

    def run() -> None:
        results.append(load(folder, NF4, cache, meet))

    workers = [threading.Thread(target=run) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [loaded.converted_now for loaded in results] == [True, True]
    assert contents(cache) == [results[0].folder.name]
    ids = torch.arange(3, 33)
    assert torch.equal(*(split_logits(loaded.model, ids) for loaded in results))


def test_a_whole_conversion_is_never_moved_away_by_one_that_ends_at_the_same_time(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = cache / "m"
    looked, published = threading.Event(), threading.Event()

    def slow_look(asked: Path) -> bool:
        found = is_complete(asked)
        if threading.current_thread() is slow:
            looked.set()
            published.wait(timeout=0.5)
        return found

    def run() -> None:
        checkpoint = FolderCheckpoint(folder)
        convert(checkpoint, architecture_of(checkpoint.config), NF4, target, quiet)

    monkeypatch.setattr("engine.converted.is_complete", slow_look)
    slow = threading.Thread(target=run)
    slow.start()
    assert looked.wait(timeout=30)
    run()
    published.set()
    reader = (target / "weights.safetensors").stat().st_ino
    slow.join()
    assert (target / "weights.safetensors").stat().st_ino == reader
    assert contents(cache) == ["m"]


@pytest.mark.parametrize("step_s", [-3.0, 3.0])
def test_a_running_conversion_is_not_taken_for_abandoned_when_the_clock_is_set(
    step_s: float, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_time = psutil.Process.create_time
    with building(cache / "m") as running:
        monkeypatch.setattr(psutil.Process, "create_time", lambda p: create_time(p) + step_s)
        with building(cache / "other"):
            assert running.is_dir()


class FullDisk(FolderCheckpoint):
    """Its tokenizer is the one that does not fit any more."""

    def write_tokenizer(self, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_told_in_numbers_and_leaves_nothing(folder: Path, cache: Path) -> None:
    checkpoint = FullDisk(folder)
    with pytest.raises(ModelError) as caught:
        convert(checkpoint, architecture_of(checkpoint.config), NF4, cache / "m", quiet)
    assert caught.value.code == "disk_full"
    assert "GiB are free" in caught.value.message
    assert contents(cache) == []


def test_a_model_larger_than_the_disk_is_refused_before_any_work(folder: Path, cache: Path) -> None:
    checkpoint = FolderCheckpoint(folder)
    arch = msgspec.structs.replace(architecture_of(checkpoint.config), vocab=1 << 50)
    stages: list[str] = []
    with pytest.raises(ModelError) as caught:
        convert(checkpoint, arch, NF4, cache / "m", lambda stage, *_: stages.append(stage))
    assert caught.value.code == "disk_full"
    assert stages == []


def test_a_cache_that_cannot_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError) as caught:
        load(folder, NF4, tmp_path / "file" / "cache", quiet)
    assert caught.value.code == "cache_unwritable"
    assert str(tmp_path / "file") in caught.value.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"qk_norm": True}, "lacks model.layers.0.self_attn.k_norm.weight"),
        ({"layers": 2}, "has model.layers.2."),
        ({"feed_forward": 95}, r"\[190, 64\]"),
        ({"vocab": 301}, r"\[301, 64\]"),
    ],
)
def test_tensors_that_the_architecture_does_not_expect_are_named(
    change: dict[str, Any], said: str, folder: Path, cache: Path
) -> None:
    checkpoint = FolderCheckpoint(folder)
    arch = msgspec.structs.replace(architecture_of(checkpoint.config), **change)
    with pytest.raises(ModelError, match=said) as caught:
        convert(checkpoint, arch, NF4, cache / "m", quiet)
    assert caught.value.code == "unexpected_tensors"
    assert contents(cache) == []


def test_a_tied_head_that_stays_dense_is_kept_once(tmp_path: Path) -> None:
    checkpoint = FolderCheckpoint(
        save_folder(random_model("llama", tie_word_embeddings=True), tmp_path / "m")
    )
    arch = with_rotary(architecture_of(checkpoint.config), checkpoint.config)
    convert(checkpoint, arch, DENSE, tmp_path / "c", quiet)
    weights = read_weights(tmp_path / "c", lambda *_: None)
    assert weights["head.dense"].data_ptr() == weights["embed.weight"].data_ptr()


@pytest.mark.parametrize("quant", ["nf4", "int8"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_packing_in_slices_is_packing_at_once(quant: Any, device: Any) -> None:
    settings = LoadSettings(quant=quant, device=device)
    weight = torch.randn(4500, 2048, generator=torch.Generator().manual_seed(0))
    whole = pack(weight, quant, device)
    sliced = _packed(weight, settings)
    assert set(whole) == set(sliced)
    assert all(torch.equal(whole[part], sliced[part]) for part in whole)


@pytest.mark.parametrize("quant", sorted(_BYTES_PER_WEIGHT))
def test_the_space_asked_for_suffices(quant: Any) -> None:
    weight = torch.randn(512, 1024)
    size = sum(part.nbytes for part in pack(weight.bfloat16(), quant, "cpu").values())
    assert size <= weight.numel() * _BYTES_PER_WEIGHT[quant] * 1.01


def test_a_context_beyond_the_models_own_is_refused(folder: Path, cache: Path) -> None:
    with pytest.raises(RequestError, match="256"):
        load(folder, msgspec.structs.replace(NF4, context_tokens=512), cache, quiet)
    assert contents(cache) == []


def test_a_model_that_does_not_fit_into_memory_is_refused_before_any_work(
    theirs: Any, cache: Path, tmp_path: Path
) -> None:
    theirs = random_model("qwen2", max_position_embeddings=1 << 20)
    folder = save_folder(theirs, tmp_path / "long")
    huge = msgspec.structs.replace(NF4, context_tokens=1 << 20, rows=64)
    with pytest.raises(MemoryLimitError, match="64 × 1,048,576"):
        load(folder, huge, cache, quiet)
    assert contents(cache) == []


def test_a_path_without_a_model_gets_the_preflights_sentence(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "nothing", NF4, cache, quiet)
    assert caught.value.code == "model_missing"


def test_a_warm_start_imports_neither_transformers_nor_bitsandbytes(
    folder: Path, cache: Path
) -> None:
    load(folder, NF4, cache, quiet)
    program = (
        "import sys; from pathlib import Path\n"
        "from engine.config import LoadSettings; from engine.loading import load\n"
        "settings = LoadSettings(quant='nf4', device='cpu', threads=1)\n"
        "assert not load(Path(sys.argv[1]), settings, Path(sys.argv[2]), print).converted_now\n"
        "heavy = {'transformers', 'bitsandbytes', 'gguf', 'torch._dynamo'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(folder), str(cache)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
        capture_output=True,
    )


def test_the_origin_says_where_a_conversion_came_from(folder: Path, cache: Path) -> None:
    loaded = load(folder, NF4, cache, quiet)
    origin = msgspec.json.decode((loaded.folder / "origin.json").read_bytes(), type=Origin)
    assert origin.source == str(folder)
    assert origin.digest == loaded.digest
    assert origin.folder_name == origin_of(folder, loaded.digest, NF4).folder_name


# Less than usual


def needed(arch_context: int, rows: int, folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text())
    arch = architecture_of(config)
    return plan(
        _sizes(arch), quant="nf4", context_tokens=arch_context, rows=rows, available_bytes=0
    ).total


def test_as_many_rows_are_kept_as_there_is_memory_for(folder: Path, cache: Path) -> None:
    loaded = load(folder, NF4, cache, quiet)
    assert (loaded.rows, loaded.notice, loaded.context_tokens) == (4, "", 256)


def test_a_context_asked_for_has_no_notice(folder: Path, cache: Path) -> None:
    settings = msgspec.structs.replace(NF4, context_tokens=128)
    loaded = load(folder, settings, cache, quiet)
    assert (loaded.context_tokens, loaded.model.context_tokens, loaded.notice) == (128, 128, "")


def limited(
    monkeypatch: pytest.MonkeyPatch, path: Path, cache: Path, settings: LoadSettings, free: int
) -> Loaded:
    """Load on a machine with `free` bytes: the one number of the machine is what is replaced."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    return load(path, settings, cache, quiet)


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = random_model("qwen2", max_position_embeddings=1 << 15)
    return save_folder(model, tmp_path_factory.mktemp("long") / "m")


def test_without_memory_for_the_usual_context_a_shorter_one_is_taken_and_told(
    long_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = needed(3000, 2, long_folder)
    for _ in range(2):  # when it is converted, and when it is only read
        loaded = limited(monkeypatch, long_folder, cache, NF4, free)
        assert 3000 <= loaded.context_tokens < 3000 + 128
        assert loaded.model.context_tokens == loaded.context_tokens
        assert loaded.rows == 2
        assert f"{loaded.context_tokens:,} tokens instead of 16,384" in loaded.notice


def test_without_memory_for_the_context_asked_for_the_numbers_refuse(
    long_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = msgspec.structs.replace(NF4, context_tokens=8192)
    with pytest.raises(MemoryLimitError, match="2 × 8,192") as caught:
        limited(monkeypatch, long_folder, cache, settings, needed(3000, 2, long_folder))
    assert "--context 3" in caught.value.hint
    assert contents(cache) == []


def test_memory_that_runs_out_while_reading_is_told_in_numbers(folder: Path, cache: Path) -> None:
    load(folder, NF4, cache, quiet)

    def report(stage: str, done: int, total: int) -> None:
        if stage == "reading":
            torch.empty(1 << 50, dtype=torch.int8)

    with pytest.raises(MemoryLimitError, match="of weights were read") as caught:
        load(folder, NF4, cache, report)
    assert caught.value.code == "out_of_memory"
    assert "are free" in caught.value.message


def test_a_head_is_loaded_with_its_model_and_a_damaged_one_left_out(
    folder: Path, cache: Path, tmp_path: Path
) -> None:
    heads = tmp_path / "heads"
    bare = load(folder, NF4, cache, quiet, heads=heads)
    assert (bare.head, bare.notice) == (None, "")
    arch = bare.architecture
    file = file_in(heads, bare.weights_digest)
    told = about(jump=arch.layers - 1, vocab=32, digest=bare.weights_digest)
    save_head(file, told, random_tensors(arch.hidden))
    found = load(folder, NF4, cache, quiet, heads=heads)
    assert found.head is not None
    assert found.head.about == told
    file.write_bytes(file.read_bytes()[:-1])
    spoilt = load(folder, NF4, cache, quiet, heads=heads)
    assert spoilt.head is None
    assert "train-head" in spoilt.notice
