"""What a course judges its jumps with, made from the first answers: what this machine takes for the
parts of a step, which ids drafts score, which neurons their layers keep.

It decides nothing about jumps. Invariant: from here on all samples are as drafts will see them,
those still to come included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from engine.draft.head_tensors import neurons_of, parted
from engine.loading import Loaded
from engine.train.before import Before
from engine.train.candidates import Bench
from engine.train.front import Front, front_neurons
from engine.train.material import Material
from engine.train.neurons import used_neurons
from engine.train.samples import Marks
from engine.train.step_costs import step_costs
from engine.train.tail import Tail
from engine.train.vocabulary import LISTED, ids_by_use, vocabulary_size

Tell = Callable[[str, str], None]
"""A stage and a note."""


def new_bench(
    loaded: Loaded,
    material: Material,
    before: Before | None,
    shares: Sequence[float],
    marks: Marks,
    tell: Tell,
) -> Bench:
    """Measure and choose; a few seconds. The samples of `material` are changed by it."""
    model, arch = loaded.model, loaded.architecture
    tell("measuring this machine", "")
    costs = step_costs(model)
    front = Front(model, _front(loaded, material, before))
    material.change(front)
    held_out = material.judges()
    answers = material.trained_on or held_out
    ids = ids_by_use(answers, arch.vocab)
    vocab = vocabulary_size(held_out, ids, arch.vocab, costs)
    tell("writing out the last layers", f"{vocab:,} token ids")
    tail = Tail(model, min(marks.jumps), vocab, ids)
    return Bench(
        tail=tail, held_out=held_out, costs=costs, used=used_neurons(tail, answers),
        front=front.neurons, shares=shares, listed=ids[: max(vocab, LISTED)],
    )  # fmt: skip


def _front(loaded: Loaded, material: Material, before: Before | None) -> dict[int, Tensor]:
    """The first layer's neurons: those of the head that was there, else those that answers use."""
    known = {} if before is None else parted(neurons_of(before.tensors), before.about.jump)[0]
    return known or front_neurons(loaded.model, material.trained_on or material.judges())
