"""Settings to drafters: the only file that names them all."""

from __future__ import annotations

from engine.draft.contract import Drafter
from engine.draft.copy import EVIDENCE_FROM, CopyDrafter
from engine.draft.layer_skip import LayerSkipDrafter
from engine.draft_length import Acceptance
from engine.model import Model
from engine.protocol import RequestError, Route, RouteChoice

COPY_GUESSES = (0.35, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Acceptance of the first copied token by evidence class, until it is known."""
assert len(COPY_GUESSES) == len(EVIDENCE_FROM), "one guess per class"


def default_exit_layer(layers: int) -> int:
    """Three quarters of the depth: stock weights agree with themselves nowhere earlier."""
    return max(1, min(layers - 1, round(layers * 0.75)))


def drafters_for(choice: RouteChoice, model: Model, exit_layer: int) -> tuple[Drafter, ...]:
    """Fresh drafters for one request, the one to ask first in front."""
    if not 1 <= exit_layer < model.architecture.layers:
        raise RequestError(
            "bad_setting",
            f"exit layer {exit_layer} is outside this model of {model.architecture.layers} layers",
            f"Choose a value from 1 to {model.architecture.layers - 1}.",
        )
    copy = CopyDrafter(model.device)
    layer_skip = LayerSkipDrafter(model, exit_layer)
    by_choice: dict[RouteChoice, tuple[Drafter, ...]] = {
        "auto": (copy, layer_skip),
        "copy": (copy,),
        "layer_skip": (layer_skip,),
        "plain": (),
    }
    return by_choice[choice]


def new_records(choice: RouteChoice) -> dict[tuple[Route, int], Acceptance]:
    """Acceptance records of the routes that `choice` allows, with starting guesses that evidence
    replaces within a few rounds.

    Under `auto`, early exit starts as hopeless as it measures on stock weights; when asked for by
    name it gets the chance to show its own figure first.
    """
    copy: dict[tuple[Route, int], Acceptance] = {
        ("copy", index): Acceptance(first=guess, later=0.8)
        for index, guess in enumerate(COPY_GUESSES)
    }
    hope = 0.2 if choice == "auto" else 0.9
    layer_skip: dict[tuple[Route, int], Acceptance] = {
        ("layer_skip", 0): Acceptance(first=hope, later=hope)
    }
    by_choice: dict[RouteChoice, dict[tuple[Route, int], Acceptance]] = {
        "auto": copy | layer_skip,
        "copy": copy,
        "layer_skip": layer_skip,
        "plain": {},
    }
    return by_choice[choice]
