"""`bench --shape NAME`: what a model of this size takes here, before anybody has its files.

The measuring is `engine.shape`'s. Invariant: it says that nothing is known about acceptance, since
random weights answer nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

import msgspec

from app.measure import say
from app.paths import user_paths
from engine.protocol import RequestError

if TYPE_CHECKING:
    from engine.config import LoadSettings
    from engine.shape import ShapeCosts, ShapeReport

EXCLUDED = (
    "Random weights: their text means nothing, so acceptance, and with it the speed of drafting, "
    "is not measured."
)


def run_shape(name: str, settings: LoadSettings, out: TextIO, *, as_json: bool) -> None:
    """Build random weights of the size `name`, time passes and print what came of it."""
    import torch

    from engine.host_memory import physical_cores
    from engine.out_of_memory import told
    from engine.shape import measure_shape, sizes_of

    sizes = sizes_of(name)
    torch.set_num_threads(settings.threads or physical_cores())
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise RequestError("no_cuda", "torch sees no CUDA device", "Use --device cpu.")
    decided = msgspec.structs.replace(settings, device=device)
    with told(f"while {name} was laid out", "Close other programs, or take a smaller shape."):
        report = measure_shape(
            name,
            sizes,
            decided,
            user_paths().kernels_dir(),
            lambda stage: say(sys.stderr, f"{name}: {stage}"),
        )
    if as_json:
        say(out, msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    for line in shape_lines(report):
        say(out, line)


def shape_lines(report: ShapeReport) -> list[str]:
    """The report as lines of text."""
    head = (
        f"{report.name}, random weights, {report.quant}, on {report.device}: "
        f"{report.parameters / 1e9:.2f} billion parameters, "
        f"weights {report.weight_bytes / 2**30:.2f} GiB, "
        f"KV {report.kv_bytes_per_token / 1024:.0f} KiB a token"
    )
    rows = list(report.costs[0].pass_ratio)
    paths = list(report.costs[0].draft_ratio)
    titles = "".join(f"{f'r({w})':>7}" for w in rows) + "".join(f"{f'c({p})':>9}" for p in paths)
    return [
        head,
        f"{'context':>8} {'plain ms':>9} {'tok/s':>7}{titles}",
        *(_line(costs) for costs in report.costs),
        "r(w): a pass of w rows ÷ one of one row. c(a+b): one draft token through the first a and "
        "the last b layers and the whole head ÷ the same.",
        EXCLUDED,
    ]


def _line(costs: ShapeCosts) -> str:
    ratios = "".join(f"{ratio:>7.2f}" for ratio in costs.pass_ratio.values())
    drafts = "".join(f"{ratio:>9.2f}" for ratio in costs.draft_ratio.values())
    return (
        f"{costs.context_tokens:>8,} {costs.plain_ms:>9.1f} {1e3 / costs.plain_ms:>7.1f}"
        f"{ratios}{drafts}"
    )
