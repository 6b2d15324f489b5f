"""A yardstick for plain decoding: the shortest loop over the same matrices, against the engine.

    python -m tests.measure.reference_loop --model PATH [--tokens 128] [--repeats 5]

No rows, no masks, no rollback, no sampling chain, no events: one token, one pass, argmax. What the
engine takes longer than this is the price of everything it can do besides. Both take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from app.paths import user_paths
from engine.config import DraftSettings, LoadSettings
from engine.loading import Loaded, load
from engine.model import Model
from engine.protocol import ChatPrompt, GenerateRequest, SamplingParams, Turn
from engine.session import Session, measured_costs

QUESTION = "Explain what a hash table is, how it works, and when not to use one."


@torch.inference_mode()
def plain_loop(model: Model, prompt: list[int], tokens: int) -> tuple[list[int], float]:
    """Greedy tokens after `prompt`, and tokens per second of decoding."""
    arch = model.architecture
    groups, per_group, width = arch.kv_heads, arch.heads // arch.kv_heads, arch.head_dim
    slots = len(prompt) + tokens
    keys = torch.zeros(arch.layers, 1, groups, slots, width, dtype=model.dtype)
    values = torch.zeros_like(keys)
    angle = torch.outer(torch.arange(slots).float(), torch.tensor(arch.inv_freq))
    cos = torch.cat((angle.cos(), angle.cos()), -1).to(model.dtype)
    sin = torch.cat((-angle.sin(), angle.sin()), -1).to(model.dtype)
    output: list[int] = []
    began = 0.0
    for at in range(slots - 1):
        if at == len(prompt) - 1:
            began = time.perf_counter()
        token = prompt[at] if at < len(prompt) else output[-1]
        x = model.embed(torch.tensor([token]))
        for i, layer in enumerate(model.layers):
            heads = layer.qkv(layer.attn_norm(x)).view(-1, width)
            turned = heads[:-groups]
            turned = turned * cos[at] + turned.roll(width // 2, -1) * sin[at]
            keys[i, 0, :, at], values[i, 0, :, at] = turned[arch.heads :], heads[-groups:]
            attended = F.scaled_dot_product_attention(
                turned[: arch.heads].view(1, groups, per_group, width),
                keys[i, :, :, : at + 1],
                values[i, :, :, : at + 1],
            )
            x = x + layer.o(attended.view(1, -1))
            gate, up = layer.up(layer.mlp_norm(x)).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        if at >= len(prompt) - 1:
            output.append(int(model.head(model.final_norm(x)).argmax()))
    return output, len(output) / (time.perf_counter() - began)


def engine_speed(session: Session, request: GenerateRequest) -> tuple[list[int], float]:
    """The same through the engine, events and all."""
    answer = session.start_ids(request, session.encode(request), frozenset())
    while not answer.done:
        for _ in answer.step():
            pass
    return answer.row.output, 1e3 * len(answer.row.output) / answer.usage().decode_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    loaded: Loaded = load(
        asked.model, LoadSettings(), user_paths().converted_dir(), lambda *_: None
    )
    settings = DraftSettings()
    costs = measured_costs(loaded, settings, None)
    session = Session(loaded, settings, costs, name=asked.model.name)
    request = GenerateRequest(
        id="yardstick",
        prompt=ChatPrompt(turns=(Turn(role="user", content=QUESTION),)),
        sampling=SamplingParams(max_tokens=asked.tokens),
        route="plain",
    )
    prompt = session.encode(request)
    ratios = []
    for repeat in range(asked.repeats + 1):
        _, reference = plain_loop(loaded.model, prompt, asked.tokens)
        _, ours = engine_speed(session, request)
        if repeat:  # the first turn warms up
            ratios.append(ours / reference)
            print(f"reference {reference:6.1f} tok/s   engine {ours:6.1f} tok/s")
    print(f"engine ÷ reference, median of {asked.repeats}: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
