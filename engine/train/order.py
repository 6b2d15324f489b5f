"""What is asked of a course, and which layers are looked at for it.

Plain values and their checks. Invariant: marks hold at least one pair of layers with some between.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.nf4_tiles import BLOCK
from engine.protocol import RequestError
from engine.train.samples import Marks

FIRSTS = (1, 2, 3)
TAILS = (10, 8, 6, 4, 2)
"""Layers before the jump, and after it, that are tried."""
SHARES = (1.0, 0.5, 0.25, 0.125)
"""Of the neurons of the layers after the jump that are tried."""
WIDTH = 768
"""Units of the network beside the map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for."""

    minutes: float = 20.0
    first: int | None = None
    jump: int | None = None
    neurons: int | None = None
    """Kept of each layer behind the jump, in whole blocks."""
    quick: bool = False
    """Only the closed form."""
    project: Path | None = None
    """Where fills and edits are cut from; None takes Python's standard library."""
    width: int = WIDTH


def shares_for(feed_forward: int, order: Order) -> tuple[float, ...]:
    """Which shares of a layer's neurons to try. Raises `RequestError` for more than there are."""
    if order.neurons is None:
        return SHARES
    if not BLOCK <= order.neurons <= feed_forward:
        raise RequestError(
            "bad_setting",
            f"--neurons {order.neurons} is no number of this model's {feed_forward} in a layer",
            f"Choose a value from {BLOCK} to {feed_forward}.",
        )
    return (order.neurons / feed_forward,)


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
