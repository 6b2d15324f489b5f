"""The k steps that every model-based route shares: run a token, draw the next, repeat."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.draft.contract import Draft
from engine.row import Row

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(1,) token ids -> its state after the draft's layers (1, D), scores of the next token (1, V)."""


def draft_by_steps(row: Row, k: int, device: torch.device, step: Step) -> Draft:
    """Draw k tokens one by one; the law each came from is kept, the last is not run."""
    token = torch.tensor(row.tokens[-1:], device=device)
    tokens: list[Tensor] = []
    laws: list[Tensor] = []
    states: list[Tensor] = []
    for _ in range(k):
        state, scores = step(token)
        token, law = row.chain.draw(scores, tokens)
        states.append(state)
        tokens.append(token)
        if law is not None:
            laws.append(law)
    return Draft(
        tokens=torch.cat(tokens),
        probs=torch.cat(laws) if laws else None,
        hidden=torch.cat(states),
    )
