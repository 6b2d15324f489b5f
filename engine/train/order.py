"""What is asked of a course, and which layers are looked at for it.

Plain values and their checks. Invariant: marks hold at least one pair of layers with some between.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.protocol import RequestError
from engine.train.samples import Marks

FIRSTS = (1, 2, 3)
TAILS = (8, 6, 4, 3, 2)
"""Layers before the jump, and after it, that are tried."""
WIDTH = 768
"""Units of the network beside the map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for."""

    minutes: float = 20.0
    first: int | None = None
    jump: int | None = None
    quick: bool = False
    """Only the closed form."""
    project: Path | None = None
    """Where fills and edits are cut from; None takes Python's standard library."""
    width: int = WIDTH


def marks_for(layers: int, order: Order) -> Marks:
    """The layers to keep states of. Raises `RequestError` for layers that the model lacks."""
    firsts = FIRSTS if order.first is None else (order.first,)
    jumps = tuple(layers - tail for tail in TAILS) if order.jump is None else (order.jump,)
    for name, asked in (("first", order.first), ("jump", order.jump)):
        if asked is not None and not 1 <= asked < layers:
            raise RequestError(
                "bad_setting",
                f"--{name} {asked} is outside this model of {layers} layers",
                f"Choose a value from 1 to {layers - 1}.",
            )
    marks = Marks(
        firsts=tuple(f for f in firsts if f < layers),
        jumps=tuple(j for j in jumps if j > min(firsts)),
        layers=layers,
    )
    if not marks.jumps:
        raise RequestError(
            "bad_setting",
            f"there is no layer to jump to behind layer {min(firsts)} of {layers}",
            "Choose a smaller --first or a larger --jump.",
        )
    return marks
