"""One request while it is decoded: its tokens, its cache row, its sampling chain, its uniforms.

Invariant between rounds: the cache row holds every token but the last one, which is *pending*; its
pass is the first row of the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.protocol import FinishReason, SamplingParams, TokenKind
from engine.sampling import draw, is_greedy, law, likeliest, needs_history, penalise, widened


class Chain:
    """The sampling chain of one request, bound to its history and its own generator."""

    def __init__(self, params: SamplingParams, history: list[int], device: torch.device) -> None:
        self.greedy = is_greedy(params)
        self._params = params
        self._history = history
        self._generator = torch.Generator()
        if params.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(params.seed)
        self._device = device

    @property
    def needs_history(self) -> bool:
        """Whether the laws depend on which tokens were seen before."""
        return needs_history(self._params)

    def scores(
        self,
        logits: Tensor,  # (T, V), or of the first few token ids
        drafted: Tensor,  # (T - 1,) or longer: the tokens that stand before rows 1, 2, …
    ) -> Tensor:  # as logits
        """Logits with the penalty that holds at each position."""
        if not needs_history(self._params):
            return logits
        seen = torch.tensor(self._history, device=logits.device)
        seen = seen[seen < logits.shape[-1]]
        return torch.stack(
            [
                penalise(row, torch.cat((seen, drafted[:i])), self._params.repetition_penalty)
                for i, row in enumerate(widened(logits))
            ]
        )

    def laws(self, scores: Tensor) -> Tensor:  # (T, V) -> (T, V)
        """The laws that `scores` stand for; only when not greedy."""
        return law(scores, self._params)

    def uniforms(self, count: int) -> Tensor:  # (count,) float64
        """Fresh uniforms from the request's generator."""
        drawn = torch.rand(count, dtype=torch.float64, generator=self._generator)
        return drawn.to(self._device)

    def draw(
        self,
        logits: Tensor,  # (1, V), or of the first few token ids
        drafted: Sequence[Tensor],  # each (1,), of these ids
    ) -> tuple[Tensor, Tensor | None]:  # (1,) int64, as logits or None when greedy
        """One drafted token and the law it was drawn from."""
        if needs_history(self._params) and drafted:
            before = torch.cat(list(drafted))
            logits = self.scores(logits.expand(len(drafted) + 1, -1), before)[-1:]
        else:
            logits = self.scores(logits, torch.empty(0, dtype=torch.int64, device=logits.device))
        if self.greedy:
            return likeliest(logits), None
        probs = self.laws(logits)
        return draw(probs, self.uniforms(1)), probs


@dataclass(slots=True, kw_only=True)
class Row:
    """The state of one request."""

    id: str
    tokens: list[int]
    """Prompt and output; the last one is pending."""
    prompt_tokens: int
    cache_row: int
    chain: Chain
    stop_ids: frozenset[int]
    max_tokens: int
    finished: FinishReason | None = None
    tapped: Tensor | None = None
    """(1, D), the state before the tapped layer of the token before the pending one; None where
    no pass has shown it."""
    kinds: list[TokenKind] = field(default_factory=list)
    """Where each output token came from."""

    @property
    def output(self) -> list[int]:
        """The tokens generated so far, a final stop token included."""
        return self.tokens[self.prompt_tokens :]

    def take(self, tokens: Sequence[int], kinds: Sequence[TokenKind]) -> int:
        """Append a round's tokens, cut after the first stop token and at `max_tokens`; returns how
        many were taken."""
        taken = 0
        for token, kind in zip(tokens, kinds, strict=True):
            self.tokens.append(token)
            self.kinds.append(kind)
            taken += 1
            if token in self.stop_ids:
                self.finished = "stop"
                break
            if len(self.tokens) - self.prompt_tokens >= self.max_tokens:
                self.finished = "length"
                break
        return taken
