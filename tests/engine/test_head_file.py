"""A head's file comes back as it was written, is found by digest, and says what is wrong."""

from __future__ import annotations

import json
import resource
import signal
import struct
from pathlib import Path

import pytest
import torch

from engine.converted import weights_digest
from engine.draft.head_file import (
    file_in,
    head_of,
    heads_for,
    load_head,
    read_about,
    read_head,
    save_head,
)
from engine.draft.head_tensors import neuron_tensors, neurons_of
from engine.draft.routes import drafters_for
from engine.protocol import EngineError, ModelError, RequestError

from .tiny import tiny_model
from .tiny_heads import about, front_neurons_of, random_head, random_tensors, some_neurons

MODEL = tiny_model()
DIGEST = "d" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = file_in(tmp_path, DIGEST)
    save_head(path, about(vocab=64, stop_below=0.25), random_tensors())
    return path


@pytest.mark.parametrize("deep", [True, False])
def test_what_is_saved_comes_back(tmp_path: Path, deep: bool) -> None:
    path = file_in(tmp_path / "new folder", DIGEST)
    told, tensors = about(vocab=64, stop_below=0.25), random_tensors(deep=deep)
    save_head(path, told, tensors)
    assert read_about(path) == told
    head = load_head(path, DIGEST, MODEL)
    assert head.about == told
    assert (head.up is not None) is deep
    here, before = torch.randn(2, 64).bfloat16(), torch.randn(2, 64).bfloat16()
    assert torch.equal(head(here, before), head_of(told, tensors)(here, before))
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("deep", [True, False])
def test_the_jump_is_what_the_tensors_say(deep: bool) -> None:
    tensors = {name: t.float() for name, t in random_tensors(deep=deep).items()}
    here, before = torch.randn(3, 64), torch.randn(3, 64)
    x = torch.cat((here, before), dim=1)
    expected = x @ tensors["jump.weight"].T + tensors["jump.bias"]
    if deep:
        expected += torch.nn.functional.silu(x @ tensors["net.up"].T) @ tensors["net.down"].T
    exact = head_of(about(), tensors, "none")(here, before)
    assert torch.allclose(exact, expected, atol=1e-4)
    packed = head_of(about(), random_tensors(deep=deep))(here.bfloat16(), before.bfloat16())
    assert float((packed.float() - expected).norm() / expected.norm()) < 0.02


def test_other_readers_can_read_the_file(file: Path) -> None:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        assert {*opened.keys()} == {*random_tensors()}
        assert opened.metadata()["format"] == "1"
        assert json.loads(opened.metadata()["agreement"]) == [0.6, 0.5]
        assert torch.equal(opened.get_tensor("net.up"), random_tensors()["net.up"])


def code_of(path: Path, digest: str = DIGEST) -> str:
    with pytest.raises(ModelError) as caught:
        load_head(path, digest, MODEL)
    assert "train-head" in caught.value.hint
    assert str(path) in caught.value.message
    return caught.value.code


def test_a_head_of_other_weights_is_refused(file: Path) -> None:
    assert code_of(file, "e" * 64) == "head_other_model"


@pytest.mark.parametrize("size", [0, 5, 100, 3000, -1])
def test_a_cut_file_is_refused(file: Path, size: int) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    assert code_of(file) == "head_damaged"


def rewrite(file: Path, change: dict[str, str | None]) -> None:
    """Change metadata in place; None leaves an entry out."""
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    merged = header["__metadata__"] | change
    header["__metadata__"] = {name: value for name, value in merged.items() if value is not None}
    packed = json.dumps(header).encode().ljust(length)
    file.write_bytes(raw[:8] + packed + raw[8 + length :])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format": "2"}, "head_format"),
        ({"format": None}, "head_format"),
        ({"first": "many"}, "head_damaged"),
        ({"first": None}, "head_damaged"),
        ({"agreement": '"high"'}, "head_damaged"),
        ({"first": "0"}, "head_shape"),
        ({"jump": "4"}, "head_shape"),
        ({"jump": "3", "first": "4"}, "head_shape"),
        ({"vocab": "128"}, "head_shape"),
        ({"vocab": "50"}, "head_shape"),
        ({"vocab": "0"}, "head_shape"),
    ],
)
def test_metadata_that_can_not_be_used(
    file: Path, change: dict[str, str | None], code: str
) -> None:
    rewrite(file, change)
    assert code_of(file) == code


@pytest.mark.parametrize(
    ("name", "shape"),
    [("jump.weight", (64, 64)), ("jump.bias", None), ("net.down", (32, 64)), ("net.up", (8, 64))],
)
def test_tensors_of_another_shape(tmp_path: Path, name: str, shape: tuple[int, ...] | None) -> None:
    tensors = random_tensors()
    if shape is None:
        del tensors[name]
    else:
        tensors[name] = torch.zeros(shape)
    path = tmp_path / "head.safetensors"
    save_head(path, about(), tensors)
    assert code_of(path) == "head_shape"


@pytest.mark.parametrize("kept", [64, 128])
def test_the_neurons_that_are_kept_come_back(tmp_path: Path, kept: int) -> None:
    path, neurons = tmp_path / "head.safetensors", some_neurons(MODEL, 2, kept)
    tensors = random_tensors() | neuron_tensors(neurons)
    save_head(path, about(jump=2), tensors)
    _, read = read_head(path, DIGEST, MODEL.architecture)
    assert read.keys() == tensors.keys()
    assert {read[f"neurons.{layer}"].dtype for layer in neurons} == {torch.int32}
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    head = load_head(path, DIGEST, MODEL)
    assert head.neurons is not None
    assert head.neurons.keys() == neurons.keys()
    for layer, ids in neurons.items():
        assert head.neurons[layer].dtype == torch.int64
        assert torch.equal(head.neurons[layer], ids)
    assert head.tail is not None
    assert head.tail.architecture.feed_forward == kept
    for layer in neurons:
        assert head.tail.layers[layer].up.out_features == 2 * kept
        assert head.tail.layers[layer].qkv is MODEL.layers[layer].qkv
    here, before = torch.randn(2, 64).bfloat16(), torch.randn(2, 64).bfloat16()
    assert torch.equal(head(here, before), head_of(about(), random_tensors())(here, before))


@pytest.mark.parametrize("kept", [0, 128])
def test_the_neurons_of_the_only_layer_before_the_jump_come_back(tmp_path: Path, kept: int) -> None:
    path, front = tmp_path / "head.safetensors", front_neurons_of(MODEL)
    neurons = {**front, **(some_neurons(MODEL, 2, kept) if kept else {})}
    save_head(path, about(jump=2), random_tensors() | neuron_tensors(neurons))
    head = load_head(path, DIGEST, MODEL)
    assert head.neurons is not None
    assert head.neurons.keys() == neurons.keys()
    assert torch.equal(head.neurons[0], front[0])
    assert head.front is not None
    assert head.front.architecture.feed_forward == 64
    wanted = MODEL.pruned(front).layers[0]
    state = torch.randn(1, 64).bfloat16()
    assert torch.equal(head.front.layers[0].up(state), wanted.up(state))
    assert (head.tail is not None) == bool(kept)
    if head.tail is not None:
        assert head.tail.architecture.feed_forward == kept
        assert head.tail.layers[0] is MODEL.layers[0]


def test_a_pruned_tail_leaves_the_front_whole(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    save_head(path, about(jump=3), random_tensors() | neuron_tensors(some_neurons(MODEL, 3)))
    head = load_head(path, DIGEST, MODEL)
    assert (head.front, head.tail is None) == (None, False)


def test_a_head_without_neurons_runs_the_last_layers_whole(file: Path) -> None:
    head = load_head(file, DIGEST, MODEL)
    assert head.neurons is None
    assert head.tail is None
    assert neurons_of(random_tensors()) == {}


def test_other_readers_can_read_the_neurons(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    path, ids = tmp_path / "head.safetensors", torch.arange(40, 104)
    save_head(path, about(), random_tensors() | neuron_tensors({3: ids}))
    assert torch.equal(load_file(path)["neurons.3"], ids.to(torch.int32))


SOME = torch.arange(64)


@pytest.mark.parametrize(
    ("neurons", "said"),
    [
        ({3: SOME}, "it prunes the layers [3]"),
        ({1: SOME, 2: SOME, 3: SOME}, "it prunes the layers [1]"),
        ({2: SOME, 4: SOME}, "drafts run those from 2 on"),
        ({2: SOME, 3: torch.arange(128)}, "it keeps [64, 128] neurons"),
        ({2: SOME[:32], 3: SOME[:32]}, "it keeps [32] neurons"),
        ({2: SOME[:0], 3: SOME[:0]}, "it keeps [0] neurons"),
        ({2: SOME, 3: SOME + 65}, "a neuron of layer 3 beyond the 128"),
        ({2: SOME - 1, 3: SOME}, "a neuron of layer 2 beyond the 128"),
        ({0: SOME, 1: SOME}, "it prunes the layers [0, 1] of the 1 before the jump"),
        ({1: SOME}, "it prunes the layers [1] of the 1 before the jump"),
        ({0: SOME[:32]}, "it keeps [32] neurons"),
        ({0: SOME[:63], 2: SOME, 3: SOME}, "it keeps [63] neurons"),
        ({0: SOME[:0]}, "it keeps [0] neurons"),
        ({0: SOME + 65}, "a neuron of layer 0 beyond the 128"),
    ],
)
def test_neurons_that_the_model_lacks_are_refused(
    tmp_path: Path, neurons: dict[int, torch.Tensor], said: str
) -> None:
    refused(tmp_path, 1, neurons, said)


@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1), (0, 2, 3)])
def test_of_two_layers_before_the_jump_none_is_pruned(
    tmp_path: Path, layers: tuple[int, ...]
) -> None:
    refused(tmp_path, 2, dict.fromkeys(layers, SOME), "of the 2 before the jump")


def refused(tmp_path: Path, first: int, neurons: dict[int, torch.Tensor], said: str) -> None:
    path = tmp_path / "head.safetensors"
    save_head(path, about(first=first, jump=2), random_tensors() | neuron_tensors(neurons))
    assert code_of(path) == "head_shape"
    with pytest.raises(ModelError) as caught:
        load_head(path, DIGEST, MODEL)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("neurons.last", SOME.to(torch.int32)),
        ("neurons.3", SOME.reshape(1, 64).to(torch.int32)),
        ("neurons.3", SOME.bfloat16()),
        ("ids", torch.arange(64).to(torch.int32)),
        ("ids", (torch.arange(96) % 95).to(torch.int32)),
        ("ids", (torch.arange(96) + 1).to(torch.int32)),
        ("ids", (torch.arange(96) - 1).to(torch.int32)),
        ("ids", torch.arange(96).reshape(96, 1).to(torch.int32)),
        ("ids", torch.tensor(5, dtype=torch.int32)),
    ],
)
def test_what_can_not_be_a_list_of_neurons_or_ids_is_refused(
    tmp_path: Path, name: str, tensor: torch.Tensor
) -> None:
    path = tmp_path / "head.safetensors"
    save_head(path, about(), random_tensors() | {name: tensor})
    assert code_of(path) == "head_shape"


def test_the_users_own_head_comes_before_the_packages(tmp_path: Path) -> None:
    shipped, own = tmp_path / "package", tmp_path / "user"
    assert heads_for(DIGEST, own, shipped=shipped) == ()
    assert heads_for(DIGEST, None, shipped=shipped) == ()
    save_head(file_in(shipped, DIGEST), about(), random_tensors())
    for folder in (own, None):
        assert heads_for(DIGEST, folder, shipped=shipped) == (file_in(shipped, DIGEST),)
    save_head(file_in(own, DIGEST), about(), random_tensors())
    both = (file_in(own, DIGEST), file_in(shipped, DIGEST))
    assert heads_for(DIGEST, own, shipped=shipped) == both
    assert heads_for("e" * 64, own, shipped=shipped) == ()


def test_weights_are_told_apart_by_checkpoint_and_quantization() -> None:
    digests = {weights_digest(source, quant) for source in "ab" for quant in ("nf4", "int8")}
    assert len(digests) == 4


def test_the_route_is_offered_only_with_a_head() -> None:
    model = tiny_model()
    head = random_head(model)
    with pytest.raises(RequestError) as caught:
        drafters_for("exit_head", model, 3)
    assert "train-head" in caught.value.hint
    assert isinstance(caught.value, EngineError)
    assert [d.route for d in drafters_for("exit_head", model, 3, head)] == ["exit_head"]
    without = [d.route for d in drafters_for("auto", model, 3)]
    auto = [d.route for d in drafters_for("auto", model, 3, head)]
    assert auto.index("copy") < auto.index("exit_head") < auto.index("layer_skip")
    assert [route for route in auto if route != "exit_head"] == without
    agreement = drafters_for("exit_head", model, 3, head)[0].prior(0).rates
    assert agreement == (0.6, 0.5, 0.5)


def test_a_head_that_can_not_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = file_in(tmp_path / "file" / "heads", DIGEST)
    with pytest.raises(EngineError, match="can't be written to") as refused:
        save_head(target, about(), random_tensors())
    assert str(target) in refused.value.message
    assert "SSPEC_ASSIST_CACHE" in refused.value.hint


def test_a_disk_that_fills_up_leaves_the_old_head(file: Path) -> None:
    whole, limits = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, limits[1]))
    try:
        with pytest.raises(EngineError, match="can't be written to"):
            save_head(file, about(), random_tensors(seed=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.read_bytes() == whole
    assert [one.name for one in file.parent.iterdir() if one.is_file()] == [file.name]
