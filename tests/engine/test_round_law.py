"""The whole round on a real (tiny, float64) model: the law of two tokens, exactly.

The request's chain is given a script of uniforms in place of its generator, and every path through
it is walked. A path stands for a box of uniforms; each side of a box is entered at both of its
ends, so a step that the code has inside a box, where the formula has none, spoils the law.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import KVCache
from engine.decode import prefill_step, run_round
from engine.draft.contract import Draft, Drafter
from engine.draft.copy import CopyDrafter
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.head_file import Head
from engine.draft.layer_skip import LayerSkipDrafter
from engine.draft_length import Choice
from engine.model import Model
from engine.protocol import SamplingParams
from engine.row import Chain, Row
from engine.verify import acceptance, residual

from .exact_law import CPU, Context, Law, distance, plain_law
from .tiny import tiny_architecture, tiny_tensors
from .tiny_heads import listing, pruned_head, random_head

VOCAB = 4
PROMPT = (1, 0, 1, 1, 3, 2, 2, 3, 2)
"""`3 2` occurred before; both tokens that followed it are neither certain nor impossible here."""
EDGE = 1e-10
EVERYTHING = SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.3)
HOT = SamplingParams(temperature=1.5)
Cells = Sequence[tuple[float, list[float]]]
"""Boxes: the weight of each, and a point in it."""


class Path:
    """One way through the choices of a run; the choices past the given ones are the first ones."""

    def __init__(self, given: Sequence[int]) -> None:
        self.weight = 1.0
        self.taken: list[tuple[int, int]] = []
        self._given = given

    def choose(self, cells: Cells) -> list[float]:
        at = len(self.taken)
        index = self._given[at] if at < len(self._given) else 0
        self.taken.append((index, len(cells)))
        weight, point = cells[index]
        self.weight *= weight
        return point


def explore(run: Callable[[Path], Context]) -> Law:
    """The law of what `run` returns, over all paths."""
    result: Law = defaultdict(float)
    given: list[int] = []
    while True:
        path = Path(given)
        result[run(path)] += path.weight
        taken = path.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return result
        given = [index for index, _ in taken]
        given[-1] += 1


class ExploringChain(Chain):
    """A chain whose uniforms are chosen by a path instead of drawn."""

    def __init__(self, params: SamplingParams, history: list[int], path: Path) -> None:
        super().__init__(params, history, CPU)
        self._path = path
        self._scores = torch.empty(0)
        self._drafted = torch.empty(0, dtype=torch.int64)
        self._offered: list[Tensor] = []
        self.ids: Tensor | None = None
        """What short scores are of, if not the first ids."""

    def scores(self, logits: Tensor, drafted: Tensor) -> Tensor:
        self._scores, self._drafted = super().scores(logits, drafted), drafted
        return self._scores

    def uniforms(self, count: int) -> Tensor:
        laws = self.laws(self._scores)
        if count == 1:
            self._offered.append(self._over_all(laws[-1]))
            point = self._path.choose(_draws(laws[-1], at_both_ends=False))
        else:
            point = self._verify(laws)
        return torch.tensor(point, dtype=torch.float64)

    def _over_all(self, law: Tensor) -> Tensor:  # (n,) -> (V,)
        if self.ids is None or len(law) == VOCAB:
            return F.pad(law, (0, VOCAB - len(law)))
        return law.new_zeros(VOCAB).index_copy_(0, self.ids, law)

    def _verify(self, laws: Tensor) -> list[float]:
        tokens = self._drafted[None]
        q = torch.stack(self._offered)[None] if self._offered else None
        passing = acceptance(tokens, q, laws[None, :-1])[0].tolist()
        tests = self._path.choose(_tests(passing))
        kept = 0
        while kept < len(passing) and tests[kept] < passing[kept]:
            kept += 1
        law = laws[kept]
        if kept < len(passing):
            law = residual(law[None], None if q is None else q[:, kept], tokens[:, kept])[0]
        return [*tests, *self._path.choose(_draws(law, at_both_ends=True))]


def _draws(law: Tensor, *, at_both_ends: bool) -> Cells:
    cells, low = [], 0.0
    for mass in law.tolist():
        edge = min(EDGE, mass / 4)
        points = [low + edge, low + mass - edge] if at_both_ends else [low + mass / 2]
        if mass > 0:
            cells += [(mass / len(points), [point]) for point in points]
        low += mass
    return cells


def _tests(passing: Sequence[float]) -> Cells:
    """One box for each number of drafted tokens kept."""
    cells, reach = [], 1.0
    for kept in range(len(passing) + 1):
        fails = 1 - passing[kept] if kept < len(passing) else 1.0
        if reach * fails > 0:
            inner = [t * (1 - EDGE) for t in passing[:kept]]
            outer = [t * EDGE for t in passing[:kept]]
            rest = [0.5] * (len(passing) - kept - 1)
            if kept < len(passing):
                inner.append(passing[kept] + fails * EDGE)
                outer.append(1 - fails * EDGE)
            cells += [(reach * fails / 2, [*ends, *rest]) for ends in (inner, outer)]
        if kept < len(passing):
            reach *= passing[kept]
    return cells


class Bench:
    """A model with the prompt in its cache, and rounds from any continuation of it."""

    def __init__(self, params: SamplingParams, make: Callable[[Model], Drafter]) -> None:
        arch = tiny_architecture(layers=3, vocab=VOCAB)
        tensors = tiny_tensors(arch, "none", seed=4, dtype=torch.float64)
        self.model = Model(arch, tensors, context_tokens=64)
        self.params, self._make = params, make
        self.cache = self.model.new_cache(1)

    def law(self, wanted: int, k: int, context: Context = ()) -> Law:
        """What rounds of k drafted tokens emit after the prompt and `context`."""
        result: Law = defaultdict(float)
        for emitted, chance in explore(lambda path: self.round(path, k, context)).items():
            if len(emitted) >= wanted:
                result[emitted[:wanted]] += chance
                continue
            rest = self.law(wanted - len(emitted), min(k, 1), (*context, *emitted))
            for further, share in rest.items():
                result[emitted + further] += chance * share
        return result

    def plain(self, wanted: int) -> Law:
        """p(x) p(y | x), each from a pass over a fresh cache."""
        result: Law = {(): 1.0}
        for _ in range(wanted):
            grown: Law = {}
            for context, chance in result.items():
                tokens = [*PROMPT, *context]
                probs = plain_law(self._logits(tokens), tokens, self.params)
                grown |= {(*context, t): chance * p for t, p in enumerate(probs)}
            result = grown
        return result

    def round(self, path: Path, k: int, context: Context) -> Context:
        tokens, drafter = [*PROMPT, *context], self._make(self.model)
        chain = ExploringChain(self.params, tokens, path)
        if isinstance(drafter, ExitHeadDrafter):
            chain.ids = drafter._path.ids
        # One token of the prompt is left to read, so that its state can be tapped.
        self.cache.rollback(0, min(self.cache.lengths[0], len(PROMPT) - 2))
        row = Row(
            id="law",
            tokens=tokens,
            prompt_tokens=len(tokens),
            cache_row=0,
            chain=chain,
            stop_ids=frozenset(),
            max_tokens=32,
        )
        while not prefill_step(self.model, self.cache, row, tap=drafter.tap_layer):
            pass
        drafters: Mapping[str, Drafter] = {}
        route = "plain"
        if k:
            route = drafter.route if drafter.evidence(row) is not None else "plain"
            drafters = {drafter.route: drafter}
        choice = Choice(route=route, k=k if route != "plain" else 0, reason="law")
        run_round(self.model, self.cache, row, drafters, choice)
        return tuple(row.output)

    @torch.inference_mode()
    def _logits(self, tokens: list[int]) -> list[float]:
        cache: KVCache = self.model.new_cache(1)
        span = cache.extend(0, len(tokens))
        hidden = self.model.run_layers(
            self.model.embed(torch.tensor(tokens)), [span], cache, first=0, stop=3
        )
        return self.model.logits(hidden[-1:])[0].tolist()


def tiny_exit(model: Model, *, vocab: int = VOCAB, stop_below: float | None = None) -> Head:
    return random_head(
        model, first=1, jump=2, vocab=vocab, stop_below=stop_below, quant="none", seed=3
    )


MAKERS: dict[str, Callable[[Model], Drafter]] = {
    "copy": lambda model: CopyDrafter(model.device),
    "layer_skip": lambda model: LayerSkipDrafter(model, 2),
    "exit_head": lambda model: ExitHeadDrafter(model, tiny_exit(model)),
    "exit_head of 3 ids": lambda model: ExitHeadDrafter(model, tiny_exit(model, vocab=3)),
    "exit_head of 2 ids": lambda model: ExitHeadDrafter(model, tiny_exit(model, vocab=2)),
    "exit_head of half the neurons": lambda model: ExitHeadDrafter(
        model, pruned_head(tiny_exit(model), model)
    ),
    "exit_head of half the first layer": lambda model: ExitHeadDrafter(
        model, pruned_head(tiny_exit(model), model, kept=128, front=64)
    ),
    "exit_head of listed ids": lambda model: ExitHeadDrafter(
        model, listing(tiny_exit(model, vocab=3), model, [3, 0, 2, 1])
    ),
    "exit_head that stops": lambda model: ExitHeadDrafter(model, tiny_exit(model, stop_below=0.45)),
}


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("route", MAKERS)
@pytest.mark.parametrize("params", [EVERYTHING, HOT], ids=["everything", "hot"])
def test_two_tokens_of_real_rounds_follow_the_models_law(
    params: SamplingParams, route: str, k: int
) -> None:
    bench = Bench(params, MAKERS[route])
    found, wanted = bench.law(2, k), bench.plain(2)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert distance(found, wanted) < 1e-9
    assert (min(wanted.values()) == 0.0) == (params is EVERYTHING), "top-p cuts something here"


@pytest.mark.parametrize("route", MAKERS)
def test_the_walked_rounds_keep_and_reject(route: str) -> None:
    """Both ends of the rule are really on the walk above."""
    bench = Bench(HOT, MAKERS[route])
    emitted = explore(lambda path: bench.round(path, 2, ()))
    for length in (1, 2, 3):
        chance = sum(share for tokens, share in emitted.items() if len(tokens) == length)
        assert chance > 0.01


def test_a_path_that_is_spoilt_shows() -> None:
    """The walk is no tautology: a chain that reports a colder law than it draws from is found."""

    class Colder(LayerSkipDrafter):
        def propose(self, row: Row, k: int, cache: KVCache) -> object:
            draft = super().propose(row, k, cache)
            assert draft.probs is not None
            probs = draft.probs**2
            return type(draft)(
                tokens=draft.tokens,
                probs=probs / probs.sum(dim=1, keepdim=True),
                hidden=draft.hidden,
            )

    bench = Bench(HOT, lambda model: Colder(model, 2))
    assert distance(bench.law(1, 1), bench.plain(1)) > 1e-3


def test_a_short_law_padded_at_the_wrong_end_shows() -> None:
    class Misplaced(ExitHeadDrafter):
        def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
            draft = super().propose(row, k, cache)
            assert draft.probs is not None
            return replace(draft, probs=draft.probs.roll(1, dims=1))

    bench = Bench(HOT, lambda model: Misplaced(model, tiny_exit(model, vocab=3)))
    assert distance(bench.law(1, 1), bench.plain(1)) > 1e-3


def test_a_draft_that_withholds_tokens_by_what_they_are_shows() -> None:
    """Why a draft may stop after a token but not take it back: those that are left then follow
    another law than the one that is reported."""

    class Choosy(ExitHeadDrafter):
        def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
            draft = super().propose(row, k, cache)
            assert draft.probs is not None
            kept = 2 if k > 1 and draft.probs[1, draft.tokens[1]] > 0.3 else 1
            assert draft.hidden is not None
            cache.rollback(row.cache_row, len(row.tokens) - 1 + kept)
            return Draft(
                tokens=draft.tokens[:kept], probs=draft.probs[:kept], hidden=draft.hidden[:kept]
            )

    bench = Bench(HOT, lambda model: Choosy(model, tiny_exit(model)))
    assert distance(bench.law(2, 2), bench.plain(2)) > 1e-3
