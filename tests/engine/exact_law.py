"""The law of what a round emits, computed and not drawn.

The acceptance rule is a step function of its uniforms: monotone in each test, monotone in the final
draw. Bisection finds every step of the function under test itself, so the probabilities below are
those of the code, whatever formula it follows, to about 1e-12. `plain_law` is the other side: the
sampling chain once more, in plain Python, token by token.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.protocol import SamplingParams
from engine.row import Chain
from engine.sampling import law
from engine.verify import Verdict, accept_sampled

BISECTIONS = 40
CPU = torch.device("cpu")
PLAIN = SamplingParams(temperature=1.0)

Context = tuple[int, ...]
Law = dict[Context, float]
Accept = Callable[[Tensor, Tensor, Tensor | None, Tensor, Tensor], Verdict]
Scores = Callable[[SamplingParams, Sequence[int], Tensor, Tensor], Tensor]
Offer = Callable[[Tensor, SamplingParams], tuple[Tensor, Tensor]]


def real_scores(
    params: SamplingParams, history: Sequence[int], logits: Tensor, drafted: Tensor
) -> Tensor:
    return Chain(params, list(history), CPU).scores(logits, drafted)


def full_offer(scores: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Draft from the untruncated law; what is drawn from and what is reported are the same."""
    bare = law(scores, SamplingParams(temperature=params.temperature))
    return bare, bare


def truncated_offer(scores: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Draft from a law truncated like the target's."""
    cut = law(scores, params)
    return cut, cut


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is under test; the planted errors replace one part of it."""

    accept: Accept = accept_sampled
    scores: Scores = real_scores
    offer: Offer = full_offer


@dataclass(frozen=True, kw_only=True)
class Game:
    """A target and a draft model whose scores depend on the last token alone."""

    target: Tensor  # (V + 1, V) float64 logits; row V stands before the first token
    draft: Tensor | None  # the same for the draft; None: the draft is copied
    params: SamplingParams = PLAIN
    copied: Context = ()
    """What a deterministic draft proposes, from wherever it starts."""
    history: Context = ()
    """The prompt: seen by a repetition penalty."""

    @property
    def vocab(self) -> int:
        return self.target.shape[1]

    def row(self, context: Context) -> int:
        return context[-1] if context else self.vocab


@dataclass(frozen=True, kw_only=True)
class Branch:
    """All rounds of a batch that keep the same number of drafted tokens."""

    accepted: int
    weight: Tensor  # (N,), the probability of that number
    next: Tensor  # (N, V), the law of the token that follows them


def branches(
    accept: Accept,
    tokens: Tensor,  # (N, K)
    proposal: Tensor | None,  # (N, K, V) or None
    target: Tensor,  # (N, K + 1, V)
) -> list[Branch]:
    """The exact law of the verdicts of N rounds of k drafted tokens each."""
    n, k = tokens.shape
    passing = _thresholds(accept, tokens, proposal, target)  # (N, K)
    kept = torch.cat((passing.new_ones(n, 1), passing.cumprod(dim=1)), dim=1)
    found = []
    for a in range(k + 1):
        uniforms = torch.full((n, k + 1), 0.5, dtype=torch.float64)
        uniforms[:, :a] = passing[:, :a] / 2
        weight = kept[:, a]
        if a < k:
            uniforms[:, a] = (passing[:, a] + 1) / 2
            weight = weight * (1 - passing[:, a])
        law_next, accepted = _next_law(accept, tokens, proposal, target, uniforms)
        assert bool(((accepted == a) | (weight < 1e-9)).all()), "a test is not a threshold"
        found.append(Branch(accepted=a, weight=weight, next=law_next))
    return found


def _thresholds(
    accept: Accept, tokens: Tensor, proposal: Tensor | None, target: Tensor
) -> Tensor:  # (N, K)
    """Below which uniform each drafted token is kept, those before it having been kept."""
    n, k = tokens.shape
    if not k:
        return torch.ones(n, 0, dtype=torch.float64)
    position = torch.arange(k).repeat(n)  # (N K,)
    uniforms = torch.zeros(n * k, k + 1, dtype=torch.float64)
    rows = _Repeated(accept, tokens, proposal, target, times=k)

    def keeps(at: Tensor) -> Tensor:
        uniforms[torch.arange(n * k), position] = at
        return rows.judge(uniforms).accepted > position

    return _bisect(keeps, n * k).reshape(n, k)


def _next_law(
    accept: Accept, tokens: Tensor, proposal: Tensor | None, target: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:  # (N, V), (N,)
    """The law of the next token when the tests' uniforms stand, and how many those keep."""
    n, vocab = tokens.shape[0], target.shape[2]
    rows = _Repeated(accept, tokens, proposal, target, times=vocab)
    standing = uniforms.repeat_interleave(vocab, dim=0)
    value = torch.arange(vocab).repeat(n)

    def at_most(at: Tensor) -> Tensor:
        standing[:, -1] = at
        return rows.judge(standing).next <= value

    upto = _bisect(at_most, n * vocab).reshape(n, vocab)
    accepted = rows.judge(standing).accepted.reshape(n, vocab)[:, 0]
    return upto.diff(dim=1, prepend=torch.zeros(n, 1, dtype=torch.float64)), accepted


class _Repeated:
    """A batch of rounds, each `times` times over, to be judged at different uniforms."""

    def __init__(
        self,
        accept: Accept,
        tokens: Tensor,
        proposal: Tensor | None,
        target: Tensor,
        *,
        times: int,
    ) -> None:
        self._accept = accept
        self._tokens = tokens.repeat_interleave(times, dim=0)
        self._proposal = proposal if proposal is None else proposal.repeat_interleave(times, dim=0)
        self._target = target.repeat_interleave(times, dim=0)
        self._lengths = torch.full((self._tokens.shape[0],), tokens.shape[1])

    def judge(self, uniforms: Tensor) -> Verdict:
        return self._accept(self._tokens, self._lengths, self._proposal, self._target, uniforms)


def _bisect(holds: Callable[[Tensor], Tensor], count: int) -> Tensor:  # (count,)
    """Up to which uniform each of `count` conditions holds, holding below and failing above."""
    low = torch.zeros(count, dtype=torch.float64)
    high = torch.ones(count, dtype=torch.float64)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        held = holds(middle)
        low, high = torch.where(held, middle, low), torch.where(held, high, middle)
    return (low + high) / 2


def step_law(choose: Callable[[Tensor], Tensor], vocab: int) -> list[float]:
    """The law of one inverse-transform draw: `choose` maps (V,) uniforms to (V,) tokens."""
    upto = _bisect(lambda at: choose(at) <= torch.arange(vocab), vocab)
    return upto.diff(prepend=torch.zeros(1, dtype=torch.float64)).tolist()


@dataclass(kw_only=True)
class Emitted:
    """The law of the first tokens that rounds of k drafted tokens emit."""

    rule: Rule
    game: Game
    k: int
    _known: dict[tuple[Context, int], Law] = field(default_factory=dict)

    def law(self, wanted: int, context: Context = ()) -> Law:
        """The joint law of the next `wanted` tokens; a round that gives fewer is followed by
        another one."""
        key = (context, wanted)
        if key not in self._known:
            self._known[key] = self._round(wanted, context)
        return self._known[key]

    def _round(self, wanted: int, context: Context) -> Law:
        drafts, weights, proposal = self._drafts(context)
        result: Law = defaultdict(float)
        tokens = torch.tensor(drafts, dtype=torch.int64).reshape(len(drafts), -1)
        target = torch.stack([self._target(context, draft) for draft in drafts])
        for branch in branches(self.rule.accept, tokens, proposal, target):
            chances = (branch.weight * torch.tensor(weights, dtype=torch.float64))[:, None]
            for draft, row in zip(drafts, (chances * branch.next).tolist(), strict=True):
                for token, chance in enumerate(row):
                    if chance > 1e-13:
                        self._add(
                            result, context, (*draft[: branch.accepted], token), wanted, chance
                        )
        return result

    def _add(
        self, result: Law, context: Context, emitted: Context, wanted: int, chance: float
    ) -> None:
        if len(emitted) >= wanted:
            result[emitted[:wanted]] += chance
            return
        for rest, share in self.law(wanted - len(emitted), context + emitted).items():
            result[emitted + rest] += chance * share

    def _target(self, context: Context, draft: Context) -> Tensor:  # (K + 1, V)
        game = self.game
        rows = [game.row((*context, *draft[:i])) for i in range(len(draft) + 1)]
        drafted = torch.tensor(draft, dtype=torch.int64)
        scores = self.rule.scores(
            game.params, (*game.history, *context), game.target[rows], drafted
        )
        return law(scores, game.params)

    def _drafts(self, context: Context) -> tuple[list[Context], list[float], Tensor | None]:
        """Every draft that can happen, how probable each is, and the reported laws (N, K, V)."""
        game, k = self.game, self.k
        if game.draft is None:
            return [game.copied[:k]], [1.0], None
        drafts, weights, reports = [], [], []
        for draft in itertools.product(range(game.vocab), repeat=k):
            weight, reported = 1.0, []
            for i in range(k):
                drawn, told = self._offer(context, draft[:i])
                weight *= float(drawn[draft[i]])
                reported.append(told)
            if weight > 0:
                drafts.append(draft)
                weights.append(weight)
                reports.append(torch.stack(reported) if reported else torch.empty(0, game.vocab))
        return drafts, weights, torch.stack(reports) if k else None

    def _offer(self, context: Context, before: Context) -> tuple[Tensor, Tensor]:  # (V,) each
        game = self.game
        assert game.draft is not None
        logits = game.draft[game.row(context + before)]
        drafted = torch.tensor(before, dtype=torch.int64)
        scores = self.rule.scores(
            game.params, (*game.history, *context), logits.expand(len(before) + 1, -1), drafted
        )[-1:]
        drawn, told = self.rule.offer(scores, game.params)
        return drawn[0], told[0]


def plain_law(logits: Sequence[float], seen: Sequence[int], params: SamplingParams) -> list[float]:
    """The sampling chain as its definition reads, one token at a time."""
    scores = list(logits)
    for token in set(seen):
        score, penalty = scores[token], params.repetition_penalty
        scores[token] = score / penalty if score > 0 else score * penalty
    scores = [score / params.temperature for score in scores]
    if params.top_k:
        border = sorted(scores, reverse=True)[: params.top_k][-1]
        scores = [score if score >= border else -math.inf for score in scores]
    top = max(scores)
    probs = _normal([math.exp(score - top) for score in scores])
    if params.top_p < 1:
        before = 0.0
        for token in sorted(range(len(probs)), key=lambda t: (-probs[t], t)):
            mass, probs[token] = probs[token], probs[token] if before < params.top_p else 0.0
            before += mass
        probs = _normal(probs)
    floor = max(probs) * params.min_p
    return _normal([p if p >= floor else 0.0 for p in probs])


def _normal(weights: list[float]) -> list[float]:
    total = sum(weights)
    return [weight / total for weight in weights]


def plain_joint(game: Game, wanted: int) -> Law:
    """What plain decoding emits: p(x) p(y | x) …"""
    result: Law = {(): 1.0}
    for _ in range(wanted):
        grown: Law = {}
        for context, chance in result.items():
            logits = game.target[game.row(context)].tolist()
            probs = plain_law(logits, (*game.history, *context), game.params)
            grown |= {(*context, token): chance * p for token, p in enumerate(probs)}
        result = grown
    return result


def distance(found: Mapping[Context, float], wanted: Mapping[Context, float]) -> float:
    """The largest difference of two laws at one outcome."""
    return max(abs(found.get(key, 0.0) - wanted.get(key, 0.0)) for key in {*found, *wanted})
