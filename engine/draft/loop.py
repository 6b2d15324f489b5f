"""The steps that every model-based route shares: run a token, draw the next, repeat.

A draft may score only the first n token ids; its law is zero elsewhere, which rejection sampling
allows. It may also end early: whether one more token is drafted is settled before that token is
drawn, by the scores of those before it. All that the acceptance rule asks of a drafted token is
that it was drawn, given the text before it, from the law reported for it, and so it still was; had
the token itself a say in whether it is proposed, it would follow another law than that.
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
    row: Row, k: int, model: Model, step: Step, *, stop_below: float | None = None
) -> Draft:
    """Draw k tokens one by one, fewer once the product of the draft's highest probabilities is
    below `stop_below`; the law each came from is kept, the last is not run."""
    token = torch.tensor(row.tokens[-1:], device=model.device)
    tokens: list[Tensor] = []
    laws: list[Tensor] = []
    states: list[Tensor] = []
    trust = 1.0
    while not tokens or (len(tokens) < k and (stop_below is None or trust >= stop_below)):
        state, scores = step(token)
        token, law = row.chain.draw(scores, tokens)
        states.append(state)
        tokens.append(token)
        if law is not None:
            laws.append(law)
        if stop_below is not None and len(tokens) < k:
            trust *= _highest(scores)
    return Draft(
        tokens=torch.cat(tokens),
        probs=_filled(laws, model.architecture.vocab) if laws else None,
        hidden=torch.cat(states),
    )


def _highest(scores: Tensor) -> float:  # (1, n)
    """The highest probability of the law that the bare scores stand for."""
    return float(scores.float().softmax(dim=-1).amax())


def _filled(laws: list[Tensor], vocab: int) -> Tensor:  # each (1, n) -> (K, V)
    """The laws over the whole vocabulary."""
    law = torch.cat(laws)
    return law if law.shape[1] == vocab else F.pad(law, (0, vocab - law.shape[1]))
