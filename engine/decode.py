"""Prefill and the round. Read this first.

A round of self-speculative decoding drafts k tokens cheaply (by some of the model's own layers, or
by copying), lets the full model judge them all in one pass over k + 1 positions, keeps the prefix
it agrees with and adds one token of its own; lower layers that a draft has run are not run again.
`k = 0` is plain decoding, through the same code. The text is the full model's whatever was drafted;
drafts only decide how many passes it takes. A drafter may ask for the exact state that a layer is
given of the last kept token: the pass is then run in two stretches and *tapped* between them.

Invariant: when a round ends, the cache's write pointer of the row stands at the sequence length
less the *pending* token, the last one, which no layer has seen: it is the next round's first row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache import KVCache, Span
from engine.draft.contract import Draft, Drafter, tap_of
from engine.draft_length import Choice
from engine.model import Model
from engine.protocol import Route, TokenKind
from engine.row import Row
from engine.sampling import likeliest
from engine.verify import Verdict, accept_greedy, accept_sampled

PREFILL_TOKENS = 512
"""Prompt tokens per pass: wide enough for full speed, short enough to cancel between two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round did."""

    route: Route
    reason: str
    drafted: int
    tested: int
    accepted: int
    """Drafted tokens that were kept before the round's last one: what would have stood behind a
    stop token is not counted."""
    ended_by_draft: bool
    """Whether the last one is a drafted stop token, kept as well."""
    draft_ms: float
    verify_ms: float
    total_ms: float

    @property
    def emitted(self) -> int:
        """Tokens the row took."""
        return self.accepted + 1


@torch.inference_mode()
def prefill_step(
    model: Model, cache: KVCache, row: Row, *, most: int = PREFILL_TOKENS, tap: int | None = None
) -> bool:
    """Write the next `most` tokens of the prompt; True when only the pending token is left.

    No logits are computed: the pending token's pass, in the first round, gives them. `tap` is a
    layer before which the last token's state is kept.
    """
    done = cache.lengths[row.cache_row]
    stretch = row.tokens[done : min(done + most, len(row.tokens) - 1)]
    if stretch:
        span = cache.extend(row.cache_row, len(stretch))
        try:
            hidden = model.embed(torch.tensor(stretch, device=model.device))
            _, tapped = _run_tapped(model, cache, span, hidden, first=0, tap=tap)
        except BaseException:
            cache.rollback(row.cache_row, done)  # reserved, but not written in every layer
            raise
        row.tapped = None if tapped is None else tapped[-1:]
    return cache.lengths[row.cache_row] == len(row.tokens) - 1


def offers(drafters: Sequence[Drafter], row: Row) -> dict[Route, int]:
    """The routes that have something to draft, with the evidence each has for it."""
    found = {drafter.route: drafter.evidence(row) for drafter in drafters}
    return {route: evidence for route, evidence in found.items() if evidence is not None}


def longest_draft(cache: KVCache, row: Row) -> int:
    """The largest k whose k + 1 tokens are wanted and fit into the cache."""
    wanted = row.max_tokens - (len(row.tokens) - row.prompt_tokens) - 1
    return max(0, min(wanted, cache.slots - len(row.tokens)))


@torch.inference_mode()
def run_round(
    model: Model,
    cache: KVCache,
    row: Row,
    drafters: Mapping[Route, Drafter],
    choice: Choice,
) -> Round:
    """Draft, verify, accept, roll back, take."""
    started = time.perf_counter()
    drafter = drafters.get(choice.route)
    draft = drafter.propose(row, choice.k, cache) if drafter is not None else _no_draft(model)
    drafted_at = time.perf_counter()

    reusable = drafter.reusable_layers if drafter is not None else 0
    span, hidden = _unrun(model, cache, row, draft, reusable)
    tap = tap_of(drafters.values())
    hidden, tapped = _run_tapped(model, cache, span, hidden, first=reusable, tap=tap)
    logits = model.logits(hidden)
    verdict = _judge(row, draft, logits)
    # All that the host has to know, in one copy.
    accepted, token, *drafted = torch.cat((verdict.accepted, verdict.next, draft.tokens)).tolist()
    verified_at = time.perf_counter()

    kept = row.take([*drafted[:accepted], token], _kinds(accepted, len(drafted))) - 1
    ended_by_draft = kept < accepted
    cache.rollback(row.cache_row, len(row.tokens) - 1)
    cache.check(row.cache_row, len(row.tokens) - 1)
    row.tapped = None if tapped is None else tapped[accepted : accepted + 1]
    for each in drafters.values():
        each.observe(row, row.tapped, accepted, len(drafted))
    return Round(
        route=choice.route,
        reason=choice.reason,
        drafted=len(drafted),
        tested=kept if ended_by_draft else min(accepted + 1, len(drafted)),
        accepted=kept,
        ended_by_draft=ended_by_draft,
        draft_ms=(drafted_at - started) * 1e3,
        verify_ms=(verified_at - drafted_at) * 1e3,
        total_ms=(time.perf_counter() - started) * 1e3,
    )


def _no_draft(model: Model) -> Draft:
    nothing = torch.empty(0, dtype=torch.int64, device=model.device)
    return Draft(tokens=nothing, probs=None, hidden=None)


def _unrun(
    model: Model, cache: KVCache, row: Row, draft: Draft, reusable: int
) -> tuple[Span, Tensor]:  # (K + 1, D)
    """The pending token and the draft, before the first layer that they have not all run."""
    span = Span(row=row.cache_row, start=len(row.tokens) - 1, count=len(draft.tokens) + 1)
    # A draft by passes has reserved the slots of all these tokens but the last, copying none.
    unwritten = cache.extend(row.cache_row, span.end - cache.lengths[row.cache_row])
    if draft.hidden is None:
        pending = torch.tensor(row.tokens[-1:], device=model.device)
        hidden = model.embed(torch.cat((pending, draft.tokens)))
    else:
        # The draft ran every token but its last one through the lower layers.
        last = model.embed(draft.tokens[-1:])
        state = model.run_layers(last, [unwritten], cache, first=0, stop=reusable)
        hidden = torch.cat((draft.hidden, state))
    return span, hidden


def _run_tapped(
    model: Model, cache: KVCache, span: Span, hidden: Tensor, *, first: int, tap: int | None
) -> tuple[Tensor, Tensor | None]:  # (T, D) each
    """The states after the last layer, and those before layer `tap` if the pass goes by it."""
    tapped = None
    if tap is not None and tap >= first:
        hidden = tapped = model.run_layers(hidden, [span], cache, first=first, stop=tap)
        first = tap
    hidden = model.run_layers(hidden, [span], cache, first=first, stop=model.architecture.layers)
    return hidden, tapped


def _judge(row: Row, draft: Draft, logits: Tensor) -> Verdict:
    """Apply the request's sampling chain at every position, then the acceptance rule."""
    scores = row.chain.scores(logits, draft.tokens)
    tokens = draft.tokens[None]
    lengths = torch.tensor([len(draft.tokens)], device=logits.device)
    if row.chain.greedy:
        return accept_greedy(tokens, lengths, likeliest(scores)[None])
    proposal = None if draft.probs is None else draft.probs[None]
    uniforms = row.chain.uniforms(len(draft.tokens) + 1)[None]
    return accept_sampled(tokens, lengths, proposal, row.chain.laws(scores)[None], uniforms)


def _kinds(accepted: int, drafted: int) -> list[TokenKind]:
    if drafted == 0:
        return ["plain"]
    last: TokenKind = "bonus" if accepted == drafted else "recovered"
    kept: list[TokenKind] = ["accepted"] * accepted
    return [*kept, last]
