"""A loaded model with its cache, costs and acceptance records: what answers share, one thread.

`start` admits a request and returns its `Answer`; whoever owns the session (the engine thread, the
bench, the self-check) steps it. Nothing here waits, locks or knows of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.answer import Answer
from engine.config import MAX_DRAFT_TOKENS, DraftSettings, check_sampling
from engine.costs import CostTable
from engine.draft.routes import default_exit_layer, drafters_for, new_records
from engine.draft_length import DraftLength
from engine.loading import Loaded
from engine.protocol import ChatPrompt, GenerateRequest, RequestError
from engine.row import Chain, Row
from engine.slots import Slots


class Session:
    """Everything that outlives one answer."""

    def __init__(
        self, loaded: Loaded, settings: DraftSettings, costs: CostTable, *, name: str, rows: int = 2
    ) -> None:
        self.loaded = loaded
        self.name = name
        self.settings = settings
        self.costs = costs
        self.slots = Slots(loaded.model.new_cache(rows))
        self.exit_layer = exit_layer_of(loaded, settings)
        self._records = new_records("auto")

    @property
    def context_tokens(self) -> int:
        """Longest sequence that fits one conversation."""
        return min(self.loaded.context_tokens, self.slots.cache.slots)

    def start(self, request: GenerateRequest) -> Answer:
        """Admit a request: check it, encode it, claim a cache row. Raises `RequestError`."""
        check_sampling(request.sampling)
        ids = self.encode(request)
        text = self.loaded.text
        is_chat = isinstance(request.prompt, ChatPrompt)
        return self.start_ids(request, ids, text.chat_stop_ids if is_chat else text.fill_stop_ids)

    def start_ids(
        self, request: GenerateRequest, ids: Sequence[int], stop_ids: frozenset[int]
    ) -> Answer:
        """`start` for a prompt that is already token ids."""
        self._check(request, ids)
        tokens = list(ids)
        model = self.loaded.model
        drafters = drafters_for(request.route, model, self.exit_layer)
        records = self._records if request.route == "auto" else new_records(request.route)
        stream = self.loaded.text.stream(request.sampling.stop)
        # Last of all that can fail: a claimed row comes back only through an answer.
        cache_row, cached = self.slots.take(tokens)
        row = Row(
            id=request.id,
            tokens=tokens,
            prompt_tokens=len(tokens),
            cache_row=cache_row,
            chain=Chain(request.sampling, tokens, model.device),
            stop_ids=stop_ids,
            max_tokens=request.sampling.max_tokens,
        )
        return Answer(
            session=self,
            row=row,
            cached_tokens=cached,
            drafters={drafter.route: drafter for drafter in drafters},
            lengths=DraftLength(self.settings, self.costs, records, pinned_k=request.k),
            stream=stream,
        )

    def _check(self, request: GenerateRequest, ids: Sequence[int]) -> None:
        if len(ids) > self.context_tokens:
            raise RequestError(
                "context_full",
                f"the prompt has {len(ids)} tokens, the context holds {self.context_tokens}",
                "Attach less, or start with a larger --context.",
            )
        if not ids:
            raise RequestError("empty_prompt", "the prompt has no tokens", "Ask something.")
        if request.k is not None and not 1 <= request.k <= MAX_DRAFT_TOKENS:
            raise RequestError(
                "bad_setting",
                f"k is {request.k}, outside its range",
                f"Choose a value from 1 to {MAX_DRAFT_TOKENS}, or route plain to draft nothing.",
            )

    def encode(self, request: GenerateRequest) -> list[int]:
        """The prompt as token ids. Raises `RequestError` where the model can't take its kind."""
        text = self.loaded.text
        if isinstance(request.prompt, ChatPrompt):
            return text.chat_ids(request.prompt)
        return text.fill_ids(request.prompt)


def exit_layer_of(loaded: Loaded, settings: DraftSettings) -> int:
    """The exit layer that was asked for, else the default of this depth."""
    return settings.exit_layer or default_exit_layer(loaded.architecture.layers)
