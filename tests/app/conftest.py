"""Models that commands can be pointed at."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    """A random model of four layers, as a user's file."""
    from tests.engine.tiny_checkpoints import random_model, save_gguf  # torch, for those who ask

    model = random_model(
        "qwen2", max_position_embeddings=512, tie_word_embeddings=True, num_hidden_layers=4
    )
    return save_gguf(model, tmp_path / "tiny.gguf")
