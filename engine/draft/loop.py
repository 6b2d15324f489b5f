"""The steps that every model-based route shares: run a token, draw the next, repeat.

A draft may score only some token ids; its law is zero elsewhere, which rejection sampling allows.
It may also end early: whether one more token is drafted is settled before that token is drawn, by
the scores of those before it. All that the acceptance rule asks of a drafted token is that it was
drawn, given the text before it, from the law reported for it, and so it still was; had the token
itself a say in whether it is proposed, it would follow another law than that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.draft.contract import Draft
from engine.model import Model
from engine.row import Row

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(1,) token ids -> its state after the reusable layers (1, D), scores of the next token (1, n)."""


def draft_by_steps(
    row: Row,
    k: int,
    model: Model,
    step: Step,
    *,
    ids: Tensor | None = None,  # (n,) int64, what is scored; None: the first n token ids
    stop_below: float | None = None,
) -> Draft:
    """Draw k tokens one by one, fewer once the product of the draft's highest probabilities is
    below `stop_below`; the law each came from is kept, the last is not run."""
    if ids is not None and row.chain.needs_history:  # a penalty looks tokens up by their ids
        step, ids = _scattered(step, ids, model.architecture.vocab), None
    token = torch.tensor(row.tokens[-1:], device=model.device)
    tokens: list[Tensor] = []
    laws: list[Tensor] = []
    states: list[Tensor] = []
    trust = 1.0
    while not tokens or (len(tokens) < k and (stop_below is None or trust >= stop_below)):
        state, scores = step(token)
        token, law = row.chain.draw(scores, tokens)
        token = token if ids is None else ids[token]
        states.append(state)
        tokens.append(token)
        if law is not None:
            laws.append(law)
        if stop_below is not None and len(tokens) < k:
            trust *= _highest(scores)
    return Draft(
        tokens=torch.cat(tokens),
        probs=_filled(laws, ids, model.architecture.vocab) if laws else None,
        hidden=torch.cat(states),
    )


def _highest(scores: Tensor) -> float:  # (1, n)
    """The highest probability of the law that the bare scores stand for."""
    return float(scores.float().softmax(dim=-1).amax())


def _scattered(step: Step, ids: Tensor, vocab: int) -> Step:
    """The same step with scores of all ids in their order; the others' can't be drawn."""

    def scattered(token: Tensor) -> tuple[Tensor, Tensor]:
        state, scores = step(token)
        out = scores.new_full((1, vocab), -torch.inf)
        return state, out.index_copy_(1, ids, scores)

    return scattered


def _filled(laws: list[Tensor], ids: Tensor | None, vocab: int) -> Tensor:  # (1, n) -> (K, V)
    """The laws over the whole vocabulary."""
    law = torch.cat(laws)
    if ids is not None:
        return law.new_zeros((len(law), vocab)).index_copy_(1, ids, law)
    return law if law.shape[1] == vocab else F.pad(law, (0, vocab - law.shape[1]))
