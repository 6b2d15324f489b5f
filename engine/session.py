"""A loaded model with its cache, costs and acceptance records: what answers share, one thread.

`start` admits a request and returns its `Answer`; whoever owns the session (the engine thread, the
bench, the self-check) steps it. Nothing here waits, locks or knows of threads; only `measure` and
`check_steering` may be called from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from engine.answer import Answer
from engine.cache import KVCache
from engine.calibrate import costs_of
from engine.config import DraftSettings, check_sampling
from engine.costs import CostTable
from engine.draft.earlier import Earlier
from engine.draft.head_file import Head, joined
from engine.draft.routes import default_exit_layer, drafters_for
from engine.drafting import Drafting, Grounds, Records
from engine.fallback import fallback_tokens
from engine.loading import Loaded
from engine.native.build import sources_digest
from engine.out_of_memory import is_out_of_memory, shortage
from engine.profile import Profile, read_profile
from engine.protocol import (
    ChatPrompt,
    FillPrompt,
    GenerateRequest,
    PromptCost,
    RequestError,
    Steering,
)
from engine.row import Chain, Row
from engine.slots import Slots
from engine.telling import Telling
from engine.trace import TraceFile

if TYPE_CHECKING:
    from pathlib import Path

    from engine.draft.contract import Drafter
    from engine.model import Model

logger = logging.getLogger(__name__)


class Session:
    """Everything that outlives one answer."""

    def __init__(
        self,
        loaded: Loaded,
        settings: DraftSettings,
        costs: CostTable,
        *,
        name: str,
        rows: int | None = None,
    ) -> None:
        """`rows` is how many conversations are kept; None takes what the model was loaded for.

        Raises `MemoryLimitError` when not even one fits.
        """
        self.loaded = loaded
        self.name = name
        self.settings = settings
        self.costs = costs
        self.slots = Slots(_new_cache(loaded, loaded.rows if rows is None else rows))
        self.exit_layer = exit_layer_of(loaded, settings)
        self._profile = _profile_of(loaded)
        self._head = tuned(loaded.head, self._profile, loaded.model)
        self.earlier = Earlier()
        self._records: Records = {}
        self._context_seen = 0
        self.trace: TraceFile | None = None
        """Where every round's choice is written, if anyone asked."""

    @property
    def context_tokens(self) -> int:
        """Longest sequence that fits one conversation."""
        return min(self.loaded.context_tokens, self.slots.cache.slots)

    @property
    def tap_layer(self) -> int | None:
        """The layer whose input is kept at a prompt's end, whatever this answer drafts with: the
        next one from the same prompt may want it."""
        return None if self._head is None else self._head.about.jump

    def start(self, request: GenerateRequest) -> Answer:
        """Admit a request: check it, encode it, claim a cache row. Raises `RequestError`."""
        check_sampling(request.sampling)
        text, prompt = self.loaded.text, request.prompt
        if isinstance(prompt, FillPrompt):
            return self.start_ids(request, text.fill_ids(prompt), text.fill_stop_ids)
        opened = text.open_chat(prompt)
        said = text.said_ids(opened, self.slots.after(opened.ids))
        ids = [*opened.ids, *said]
        return self.start_ids(request, ids, text.chat_stop_ids, said=said)

    def start_ids(
        self,
        request: GenerateRequest,
        ids: Sequence[int],
        stop_ids: frozenset[int],
        said: Sequence[int] = (),
    ) -> Answer:
        """`start` for a prompt that is already token ids; `said` of them, the last ones, are the
        beginning of the answer."""
        self._check(ids)
        tokens = list(ids)
        model = self.loaded.model
        grounds = self._grounds(len(tokens), seeded=request.sampling.seed is not None)
        drafting = Drafting(grounds, Steering(route=request.route, k=request.k))
        stream = self.loaded.text.stream(request.sampling.stop, after=said)
        chain = Chain(request.sampling, tokens, model.device)
        # Last of all that can fail: a claimed row comes back only through an answer.
        claim = self.slots.take(tokens, request.conversation, request.priority)
        row = Row(
            id=request.id,
            tokens=tokens,
            prompt_tokens=len(tokens),
            cache_row=claim.row,
            chain=chain,
            stop_ids=stop_ids,
            max_tokens=request.sampling.max_tokens,
            tapped=None if claim.tap is None else claim.tap.state,
        )
        return Answer(
            session=self,
            row=row,
            claim=claim,
            drafting=drafting,
            telling=Telling(stream, stop_ids),
        )

    def encode(self, request: GenerateRequest) -> list[int]:
        """The prompt as token ids. Raises `RequestError` where the model can't take its kind."""
        return self._ids(request.prompt)

    def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        """Count a prompt's tokens; safe from any thread. Raises `RequestError` as `encode`."""
        text = self.loaded.text
        turns = prompt.turns if isinstance(prompt, ChatPrompt) else ()
        return PromptCost(
            total_tokens=len(self._ids(prompt)),
            turn_tokens=tuple(len(text.encode_plain(turn.content)) for turn in turns),
            snippet_tokens=tuple(len(text.encode_plain(s.text)) for s in prompt.snippets),
            context_limit=self.context_tokens,
        )

    def check_steering(self, steering: Steering) -> None:
        """Raise `RequestError` if no answer can draft like this; safe from any thread."""
        Drafting(self._grounds(0, seeded=True), steering)

    def stands_at(self, context_tokens: int) -> None:
        """Note the context length of a round that was run."""
        self._context_seen = context_tokens

    def fallback_tokens(self) -> int | None:
        """The context length from which drafting is expected not to pay, by what was measured so
        far; None if it pays throughout, or if nothing was drafted yet."""
        return fallback_tokens(
            self.costs, self._records, max_k=self.settings.max_k, limit=self.context_tokens
        )

    def plain_tokens_per_s(self) -> float:
        """Speed of plain decoding at the context length of the last round, by the cost table."""
        return self.costs.plain_tokens_per_s(self._context_seen)

    def _grounds(self, context_tokens: int, *, seeded: bool) -> Grounds:
        """What an answer drafts from. A seed has to repeat its draw whatever was answered in
        between, so a seeded answer copies from its own text only."""
        return Grounds(
            model=self.loaded.model,
            exit_layer=_exit_layer_at(context_tokens, self.loaded, self.settings, self._profile),
            head=self._head,
            profile=self._profile,
            earlier=Earlier() if seeded else self.earlier,
            twin=self.loaded.twin,
            settings=self.settings,
            costs=self.costs,
            records=self._records,
        )

    def _check(self, ids: Sequence[int]) -> None:
        if len(ids) > self.context_tokens:
            raise RequestError(
                "context_full",
                f"the prompt has {len(ids)} tokens, the context holds {self.context_tokens}",
                "Attach less, or start with a larger --context.",
            )
        if not ids:
            raise RequestError("empty_prompt", "the prompt has no tokens", "Ask something.")

    def _ids(self, prompt: ChatPrompt | FillPrompt) -> list[int]:
        text = self.loaded.text
        return text.chat_ids(prompt) if isinstance(prompt, ChatPrompt) else text.fill_ids(prompt)


def _profile_of(loaded: Loaded) -> Profile | None:
    found = read_profile(loaded.folder, loaded.weights_digest, loaded.architecture.layers)
    identity = "" if loaded.head is None else loaded.head.about.identity
    return None if found is None else found.with_head(identity)


def measured_costs(loaded: Loaded, settings: DraftSettings, folder: Path | None) -> CostTable:
    """What rounds cost with this model here, from `folder` or measured and kept there."""
    profile = _profile_of(loaded)
    head = tuned(loaded.head, profile, loaded.model)

    def drafters(context_tokens: int) -> tuple[Drafter, ...]:
        exit_layer = _exit_layer_at(context_tokens, loaded, settings, profile)
        return drafters_for("auto", loaded.model, exit_layer, head, twin=loaded.twin)

    return costs_of(
        loaded.model,
        drafters,
        folder=folder,
        digest=loaded.weights_digest,
        kernels=loaded.eager or sources_digest(),
    )


def tuned(head: Head | None, profile: Profile | None, model: Model) -> Head | None:
    """The head with the vocabulary and the threshold that calibration found for it."""
    if head is None or profile is None or profile.head_vocab is None:
        return head
    listed = model.architecture.vocab if head.ids is None else len(head.ids)
    vocab = min(profile.head_vocab, listed)  # of a head that was there then
    about = msgspec.structs.replace(head.about, vocab=vocab, stop_below=profile.stop_below or None)
    found = replace(head, about=about)
    return found if vocab == head.about.vocab else joined(found, model)


def _exit_layer_at(
    context_tokens: int, loaded: Loaded, settings: DraftSettings, profile: Profile | None
) -> int:
    """What was asked for, else what calibration found for such contexts."""
    found = None if profile is None else profile.exit_layer_at(context_tokens)
    return settings.exit_layer or found or exit_layer_of(loaded, settings)


def exit_layer_of(loaded: Loaded, settings: DraftSettings) -> int:
    """The exit layer that was asked for, else the default of this depth."""
    return settings.exit_layer or default_exit_layer(loaded.architecture.layers)


def _new_cache(loaded: Loaded, rows: int) -> KVCache:
    """A cache of as many rows as can be had, `rows` at most."""
    for count in range(rows, 0, -1):
        try:
            return loaded.model.new_cache(count)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        logger.warning("there is no memory for a KV cache of %d rows", count)
    raise shortage(
        f"while the KV cache for {loaded.context_tokens:,} tokens was reserved",
        "Start with a smaller --context or a smaller model.",
    )
