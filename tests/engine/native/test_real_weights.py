"""The default model's own weights and text: the pass in C, its operators one by one, and one row at
a time all have the same bits."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from app import model_store
from app.paths import user_paths
from engine.cache import Span
from engine.config import LoadSettings
from engine.converted import read_weights
from engine.fastpath import FastModel
from engine.loading import load
from engine.model import Model
from engine.native.bindings import Native

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

CONTEXT = 512
CUTS = (0, 200, 201, 205, 213, 229, 293, 294)
"""Ends of the passes: a prompt, then verify passes of several widths across blocks' borders."""


@torch.inference_mode()
def test_the_bits_of_real_weights(native: Native) -> None:
    paths = user_paths()
    source = model_store.resolve(None, paths, lambda *_: None)
    settings = LoadSettings(device="cpu", context_tokens=CONTEXT, threads=2)
    loaded = load(source.path, settings, paths.converted_dir(), lambda *_: None)
    arch, tensors = loaded.architecture, read_weights(loaded.folder, lambda *_: None)
    ids = torch.tensor(loaded.text.encode_plain(Path(__file__).read_text()))
    models = [
        make(arch, tensors, context_tokens=CONTEXT, native=native) for make in (Model, FastModel)
    ]
    caches = [model.new_cache(1) for model in models]
    for start, end in pairwise(CUTS):
        span = Span(row=0, start=start, count=end - start)
        one, other = (
            model.logits(
                model.run_layers(
                    model.embed(ids[start:end]), [span], cache, first=0, stop=arch.layers
                )
            )
            for model, cache in zip(models, caches, strict=True)
        )
        assert torch.equal(one, other), f"tokens {start} to {end}"
        if span.count <= 64:
            fast, cache = models[1], caches[1]
            single = [
                fast.run_layers(
                    fast.embed(ids[at : at + 1]), [Span(row=0, start=at, count=1)], cache,
                    first=0, stop=arch.layers,
                )
                for at in range(start, end)
            ]  # fmt: skip
            assert torch.equal(fast.logits(torch.cat(single)), other), f"rows {start} to {end}"
