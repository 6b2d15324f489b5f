"""Settings to drafters: the only file that names them all."""

from __future__ import annotations

from collections.abc import Mapping

from engine.draft.contract import Drafter
from engine.draft.copy import CopyDrafter
from engine.draft.earlier import Earlier
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.head_file import Head
from engine.draft.layer_skip import LayerSkipDrafter
from engine.draft.low_precision import NO_TWIN, LowPrecisionDrafter, Twin
from engine.model import Model
from engine.protocol import RequestError, RouteChoice

WITHOUT: Mapping[RouteChoice, tuple[str, str]] = {
    "exit_head": (
        "the route exit_head drafts with a trained exit head, and there is none for this model",
        "Make one: sspec-assist train-head.",
    ),
}
"""What a person reads who asks for a route that this model lacks, and the remedy."""
NOTHING: Mapping[RouteChoice, str] = {"exit_head": "the exit head starts after a plain round"}
"""Why a route that was asked for has no draft, where it is not for want of something to copy."""


def default_exit_layer(layers: int) -> int:
    """Three quarters of the depth: stock weights agree with themselves nowhere earlier."""
    return max(1, min(layers - 1, round(layers * 0.75)))


def drafters_for(
    choice: RouteChoice,
    model: Model,
    exit_layer: int,
    head: Head | None = None,
    earlier: Earlier | None = None,
    twin: Twin = NO_TWIN,
) -> tuple[Drafter, ...]:
    """Fresh drafters for one request, the one to ask first in front; `earlier` is what the session
    has said.

    Raises `RequestError` for an exit layer out of range, and for a route that this model lacks.
    """
    if not 1 <= exit_layer < model.architecture.layers:
        raise RequestError(
            "bad_setting",
            f"exit layer {exit_layer} is outside this model of {model.architecture.layers} layers",
            f"Choose a value from 1 to {model.architecture.layers - 1}.",
        )
    drafters: list[Drafter] = [CopyDrafter(model.device, earlier)]
    if head is not None:
        drafters.append(ExitHeadDrafter(model, head))
    if twin.model is not None:
        drafters.append(LowPrecisionDrafter(twin.model))
    drafters.append(LayerSkipDrafter(model, exit_layer))
    if choice == "auto":
        return tuple(drafters)
    named = tuple(drafter for drafter in drafters if drafter.route == choice)
    if not named and choice != "plain":
        if choice == "low_precision":
            message = f"the route low_precision drafts with an NF4 twin, and {twin.reason}"
            raise RequestError("no_route", message, twin.remedy)
        message = f"the route {choice} has nothing to draft with for this model"
        raise RequestError("no_route", *WITHOUT.get(choice, (message, "Use --route auto.")))
    return named
