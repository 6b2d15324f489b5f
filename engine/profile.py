"""What a calibration found, kept beside the model's weights and used from the next start on.

It holds for one set of weights. Where it is absent or of other weights, everything runs on its
defaults. Plain values, no torch; it decides nothing about a text, only how fast it comes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from engine.acceptance import Prior
from engine.costs import bucket_of
from engine.protocol import Route

logger = logging.getLogger(__name__)

FILE = "profile.json"
FORMAT = 1
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Rates = tuple[Share, Share, Share]


class Profile(Struct, frozen=True, kw_only=True):
    """The result of one calibration."""

    format: int = FORMAT
    weights_digest: str
    requests: int
    tokens: int
    """Of the answers that were judged."""
    exit_layers: dict[int, Annotated[int, Meta(ge=1)]] = field(default_factory=dict)
    """Bucket of context lengths → the early exit that promises most there, paying or not."""
    agreement: dict[str, Rates] = field(default_factory=dict)
    """`route` or `route/class` → measured share of kept tokens by position."""
    head: str = ""
    """Identity of the exit head that was there; what was measured with it holds for no other."""
    head_vocab: Annotated[int, Meta(ge=1)] | None = None
    stop_below: Share | None = None
    """For the exit head that was there; None leaves what its file says."""

    def with_head(self, identity: str) -> Profile:
        """What of it holds with this exit head."""
        if self.head == identity:
            return self
        others = {name: of for name, of in self.agreement.items() if name != "exit_head"}
        return msgspec.structs.replace(self, agreement=others, head_vocab=None, stop_below=None)

    def exit_layer_at(self, context_tokens: int) -> int | None:
        """The exit layer for a context of this length, from the nearest bucket."""
        if not self.exit_layers:
            return None
        bucket = bucket_of(context_tokens)
        return self.exit_layers[min(self.exit_layers, key=lambda one: (abs(one - bucket), one))]

    def prior(self, route: Route, evidence: int, usual: Prior) -> Prior:
        """What to assume of a route: what was measured, else the `usual`."""
        for name in (f"{route}/{evidence}", route):
            if name in self.agreement:
                return Prior(rates=self.agreement[name], worth=usual.worth)
        return usual


def read_profile(folder: Path, weights_digest: str, layers: int) -> Profile | None:
    """The profile kept for these weights, a model of so many layers, if there is one that can be
    read."""
    file = folder / FILE
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Profile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("the profile %s can't be read and is left out: %s", file, error)
        return None
    if (found.format, found.weights_digest) != (FORMAT, weights_digest):
        logger.warning("the profile %s is of other weights and is left out", file)
        return None
    if any(layer >= layers for layer in found.exit_layers.values()):
        logger.warning("the profile %s exits behind the last layer and is left out", file)
        return None
    return found


def save_profile(profile: Profile, folder: Path) -> Path:
    """Write it whole or not at all; returns the file. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    partial = file.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(profile)))
    partial.replace(file)
    return file


def three(agreement: tuple[float, ...]) -> Rates:
    """Shares by position as the 1st, the 2nd and all later ones."""
    padded = (*agreement, *agreement[-1:] * 2)
    return padded[0], padded[1], padded[2]
