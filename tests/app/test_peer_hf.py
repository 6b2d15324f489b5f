"""transformers as an arm: the same weights, the same prompts, its own clock."""

from __future__ import annotations

from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from app.peer_hf import HfArm, dense_bytes, dense_model, require_room
from engine.cases import Case
from engine.protocol import ChatPrompt, MemoryLimitError, SamplingParams, Turn
from tests.engine.tiny_checkpoints import random_model, save_folder, save_gguf
from tests.engine.tiny_session import tiny_loaded, tiny_session, vocabulary

CASE = Case(
    name="chat",
    kind="chat-code",
    prompt=ChatPrompt(turns=(Turn(role="user", content="one two one two"),)),
)


@pytest.fixture(scope="module")
def theirs() -> Any:
    return random_model("qwen2", vocab_size=vocabulary(), tie_word_embeddings=False)


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_the_weights_are_the_checkpoint_s(theirs: Any, tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        path = save_folder(theirs, tmp_path)
    else:
        path = save_gguf(theirs, tmp_path / "model.gguf")
    ours = dense_model(path, "cpu")
    for name, weight in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], weight.to(torch.bfloat16)), name
    assert not any(buffer.is_meta for buffer in ours.buffers())
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        expected, found = theirs(ids).logits, ours(ids).logits
    assert float((found - expected).abs().mean()) < 0.1 * float(expected.std())


def test_every_way_of_generating_is_timed(theirs: Any) -> None:
    session = tiny_session()
    model = theirs.to(torch.bfloat16)
    arms = [
        HfArm("hf", model, session),
        HfArm("hf lookup", model, session, {"prompt_lookup_num_tokens": 3}),
        HfArm("hf exit 1", model, session, {"assistant_early_exit": 1}),
    ]
    for sampling in (SamplingParams(max_tokens=9), SamplingParams(max_tokens=9, temperature=0.7)):
        for arm in arms:
            run = arm.run(CASE, sampling)
            assert 1 <= run.output_tokens <= 9, arm.name
            assert run.decode_ms > 0
            assert run.prompt_tokens > 4


def test_without_room_for_it_nothing_is_loaded() -> None:
    loaded = tiny_loaded()
    require_room(tiny_session(loaded))
    large = replace(loaded.architecture, layers=10**9)
    session = tiny_session()
    session.loaded = with_fields(loaded, architecture=large)
    assert dense_bytes(session) > 10**12
    with pytest.raises(MemoryLimitError, match="dense in transformers takes"):
        require_room(session)
