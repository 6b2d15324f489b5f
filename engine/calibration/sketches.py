"""Which paths there are to draft by, and how often each says what the model says.

Early exits from 30 to 80 % of the depth, the head that is there, and the closed forms of a few
jumps, to see what training could start from. It knows no time but the one it may take: what a path
costs is measured elsewhere. Invariant: an exit is always among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import torch
from torch import Tensor

from engine.calibration.agreement import ByPosition, exit_agreement, jump_agreement
from engine.calibration.answers import Judges
from engine.calibration.figures import Path
from engine.calibration.pace import Pace
from engine.costs import BucketCosts
from engine.draft.contract import Drafter
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.head_file import Head, joined
from engine.draft.head_tensors import neuron_tensors, parted
from engine.draft.layer_skip import LayerSkipDrafter
from engine.loading import Loaded
from engine.train.agreement import judge_jump
from engine.train.candidates import Bench, packed
from engine.train.front import Front
from engine.train.moments import Moments
from engine.train.neurons import used_neurons
from engine.train.prospect import PRUNED, prospect
from engine.train.samples import Marks
from engine.train.step_costs import step_costs
from engine.train.tail import Tail
from engine.train.vocabulary import ids_by_use, vocabulary_size

EXITS_JUDGED, JUMPS_BEGUN, JUMPS_FITTED, JUMPS_JUDGED = 0.55, 0.6, 0.66, 0.72
"""Shares of the time at which these end; jumps are begun only before theirs."""
EXITS_FROM, EXITS_TO = 0.3, 0.8
MOST_EXITS = 7
FIRSTS, TAILS = (1, 2), (2, 4, 6)
"""Layers before a jump and after it."""
JUMPS_SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A path of which only the costs are not known yet."""

    name: str
    drafter: Drafter
    layers: int
    agreement: Mapping[float, ByPosition]
    exit_layer: int | None = None
    is_there: bool = True

    def path(self, costs: Mapping[int, BucketCosts]) -> Path:
        """The whole of it."""
        return Path(
            name=self.name,
            route=self.drafter.route,
            layers=self.layers,
            exit_layer=self.exit_layer,
            is_there=self.is_there,
            agreement=self.agreement,
            costs=costs,
        )


@dataclass(slots=True, kw_only=True)
class Sketches:
    """All that was judged."""

    paths: list[Sketch] = field(default_factory=list)
    head_share: float = 0.0
    tuned: tuple[int, float] | None = None
    """The vocabulary and the threshold found for the head that is there."""


def judged(loaded: Loaded, judges: Judges, pace: Pace) -> Sketches:
    """Every path there is time for."""
    found = Sketches(paths=list(_exits(loaded, judges, pace)))
    if pace.spent >= JUMPS_BEGUN or not judges.fitted:
        why = "there was no time" if judges.fitted else "one answer can't be both fitted and judged"
        what = "jumps" if loaded.head is None else "jumps and the head that is there"
        pace.left_out.append(f"{what}: {why}")
        return found
    pace.tell("fitting jumps")
    bench = _bench(loaded, judges)
    found.head_share = bench.costs.head
    if loaded.head is not None:
        path, found.tuned = _head(loaded, loaded.head, bench)
        found.paths.append(path)
    found.paths += _jumps(loaded, judges, bench, pace)
    return found


def marks_for(layers: int, head: Head | None) -> Marks:
    """The states that exits, jumps and the head that is there are judged from."""
    own = () if head is None else ((head.about.first, head.about.jump),)
    firsts = {*_firsts(layers), *exit_layers(layers), *(first for first, _ in own)}
    jumps = {*_landings(layers), *(landing for _, landing in own)}
    return Marks(firsts=tuple(sorted(firsts)), jumps=tuple(sorted(jumps)), layers=layers)


def exit_layers(layers: int) -> list[int]:
    """Exits from 30 to 80 % of the depth, evenly, no more than are told apart."""
    low, high = max(1, round(EXITS_FROM * layers)), min(layers - 1, round(EXITS_TO * layers))
    steps = min(MOST_EXITS, high - low + 1)
    return sorted({round(low + (high - low) * i / max(1, steps - 1)) for i in range(steps)})


def _firsts(layers: int) -> tuple[int, ...]:
    return tuple(first for first in FIRSTS if first < layers)


def _landings(layers: int) -> tuple[int, ...]:
    """Where jumps land, the cheapest path first."""
    landings = tuple(layers - tail for tail in TAILS if layers - tail > min(FIRSTS))
    return landings or (layers - 1,)


def _exits(loaded: Loaded, judges: Judges, pace: Pace) -> Iterator[Sketch]:
    pace.tell("judging early exits")
    exits = exit_layers(loaded.architecture.layers)
    on_time = pace.until(EXITS_JUDGED)
    agreement = exit_agreement(loaded.model, judges.held_out, exits, on_time)
    for layer in exits:
        yield Sketch(
            name=f"first {layer}",
            drafter=LayerSkipDrafter(loaded.model, layer),
            layers=layer,
            exit_layer=layer,
            agreement=agreement[layer],
        )


def _bench(loaded: Loaded, judges: Judges) -> Bench:
    arch = loaded.architecture
    costs = step_costs(loaded.model)
    ids = _listed(loaded.head, arch.vocab, judges)
    vocab = vocabulary_size(judges.held_out, ids, arch.vocab, costs)
    tail = Tail(loaded.model, min(marks_for(arch.layers, loaded.head).jumps), vocab, ids)
    used = used_neurons(tail, judges.fitted)
    return Bench(tail=tail, held_out=judges.held_out, costs=costs, used=used)


def _listed(head: Head | None, vocab: int, judges: Judges) -> Tensor:
    """Token ids as the head that is there lists them, without one as these answers use them."""
    if head is None:
        return ids_by_use(judges.fitted, vocab)
    return torch.arange(vocab) if head.ids is None else head.ids


def _jumps(loaded: Loaded, judges: Judges, bench: Bench, pace: Pace) -> Iterator[Sketch]:
    """The most promising of the pairs that there is time to fit."""
    arch = loaded.architecture
    moments = Moments(judges.fitted)
    firsts, landings = _firsts(arch.layers), _landings(arch.layers)
    pairs = [(first, at) for at in landings for first in firsts if first < at]
    fitted: list[tuple[float, tuple[int, int], Mapping[str, Tensor]]] = []
    # Without a head they are all that shows what training could start from.
    least = 1 if loaded.head is None else 0
    for pair in pairs:
        if len(fitted) >= least and pace.spent >= JUMPS_FITTED:
            pace.left_out.append(f"{len(pairs) - len(fitted)} of {len(pairs)} jumps: no time")
            break
        jump = moments.solve(*pair)
        kept = bench.pruned(jump, *pair, PRUNED)
        fitted.append((bench.briefly(*pair, kept), pair, kept))
        pace.tell("fitting jumps", f"{len(fitted)} of {len(pairs)}")
    best = sorted(fitted, key=lambda one: -one[0])
    for shown, (_, pair, tensors) in enumerate(best[:JUMPS_SHOWN]):
        if not shown or pace.spent < JUMPS_JUDGED:
            yield _jump(loaded, bench, pair, tensors)


def _jump(
    loaded: Loaded, bench: Bench, pair: tuple[int, int], tensors: Mapping[str, Tensor]
) -> Sketch:
    first, landing = pair
    tail, native = bench.tail_of(tensors), loaded.model.native
    head = packed({**tensors, "ids": tail.ids}, native)
    whole = _about(head, first=first, jump=landing, vocab=tail.vocab)
    return Sketch(
        name=f"first {first}, from {landing}, fitted",
        drafter=ExitHeadDrafter(loaded.model, joined(whole, loaded.model)),
        layers=first + loaded.architecture.layers - landing,
        agreement=jump_agreement(loaded.model, tail, head, bench.held_out, pair),
        is_there=False,
    )


def _head(loaded: Loaded, head: Head, bench: Bench) -> tuple[Sketch, tuple[int, float]]:
    """The trained head, its vocabulary and where it should stop."""
    about, arch = head.about, loaded.architecture
    path = about.first, about.jump
    layers = about.first + arch.layers - about.jump
    kept, vocab = neuron_tensors(head.neurons or {}), bench.tail.vocab
    tail, (front, _) = bench.tail_of(kept), parted(head.neurons or {}, about.jump)
    held_out = [*map(Front(loaded.model, front), bench.held_out)]
    seen = judge_jump(tail, head, held_out, first=path[0], landing=path[1])
    best = prospect(seen, bench.costs, bench.draft_cost(*path, kept))
    tuned = _about(head, first=path[0], jump=path[1], vocab=vocab, stop=best.stop_below)
    sketch = Sketch(
        name=f"head, first {path[0]}, from {path[1]}",
        drafter=ExitHeadDrafter(loaded.model, joined(tuned, loaded.model)),
        layers=layers,
        agreement=jump_agreement(loaded.model, tail, head, held_out, path),
    )
    return sketch, (vocab, best.stop_below)


def _about(head: Head, *, first: int, jump: int, vocab: int, stop: float | None = None) -> Head:
    about = msgspec.structs.replace(
        head.about, first=first, jump=jump, vocab=vocab, stop_below=stop or None
    )
    return replace(head, about=about)
