"""Whole answers on the compiled pass: every way to draft gives the text of plain decoding."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.draft.contract import Drafter
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.layer_skip import LayerSkipDrafter
from engine.fastpath import FastModel
from engine.model import Model
from engine.native.bindings import Native
from engine.protocol import SamplingParams
from tests.engine.native.shapes import CONTEXT, SHAPES, tensors_of
from tests.engine.test_decode import PROMPT, run_all
from tests.engine.tiny import new_row
from tests.engine.tiny_heads import random_head


def drafters(model: Model) -> list[Drafter]:
    deep = random_head(model, first=1, jump=2, vocab=64)
    last = random_head(model, first=2, jump=3, vocab=32, stop_below=0.2)
    return [
        ExitHeadDrafter(model, deep),
        ExitHeadDrafter(model, last),
        LayerSkipDrafter(model, 3),
    ]


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(repetition_penalty=1.5)])
def test_drafts_do_not_change_the_text(k: int, params: SamplingParams, native: Native) -> None:
    arch = replace(SHAPES["qwen2"], layers=4)
    model = FastModel(arch, tensors_of(arch), context_tokens=CONTEXT, native=native)
    plain, _ = run_all(model, new_row(PROMPT, params, max_tokens=70), {}, 0)
    for drafter in drafters(model):
        row = new_row(PROMPT, params, max_tokens=70)
        assert run_all(model, row, {drafter.route: drafter}, k)[0] == plain
