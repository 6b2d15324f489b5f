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
    save_head,
)
from engine.draft.routes import drafters_for
from engine.protocol import EngineError, ModelError, RequestError

from .tiny import tiny_architecture, tiny_model
from .tiny_heads import about, random_head, random_tensors

ARCH = tiny_architecture()
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
    head = load_head(path, DIGEST, ARCH)
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
        load_head(path, digest, ARCH)
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
