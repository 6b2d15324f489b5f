"""Fakes that several tests share. No torch: a client's tests must run where the engine can't."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from engine.protocol import (
    ChatPrompt,
    EngineStatus,
    Event,
    Failed,
    FillPrompt,
    Finished,
    FinishReason,
    GenerateRequest,
    PromptCost,
    RoundDone,
    Started,
    Steering,
    TextDelta,
    TokenKind,
    Usage,
)

Script = Sequence[Event] | Callable[[GenerateRequest], Sequence[Event]]

STATUS = EngineStatus(
    model="scripted",
    device="cpu",
    quant="nf4",
    exact=True,
    context_limit=16384,
)


class ScriptedEngine:
    """A `SharedEngine` that plays a script of events, the same for every request or made from it.

    With `hold_after=n` it waits for ever after n events, until its reader leaves. `cancelled` has
    the ids of the requests whose reader left before the last event of the stream.
    """

    def __init__(
        self, script: Script, *, hold_after: int | None = None, status: EngineStatus = STATUS
    ) -> None:
        self.requests: list[GenerateRequest] = []
        self.cancelled: list[str] = []
        self.closed = False
        self.steered: list[tuple[str, Steering]] = []
        self.models: list[str] = []
        self.stopped = 0
        self.statuses: asyncio.Queue[EngineStatus] = asyncio.Queue()
        """What `watch` tells after the first status; a test puts in what it wants seen."""
        self.holding = asyncio.Event()
        self._script = script
        self._hold_after = hold_after
        self._status = status

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        assert not self.closed, "a closed engine was asked to generate"
        self.requests.append(request)
        script = self._script(request) if callable(self._script) else self._script
        given: list[Event] = []

        async def play() -> AsyncIterator[Event]:
            for event in script:
                if len(given) == self._hold_after:
                    self.holding.set()
                    await asyncio.Event().wait()
                await asyncio.sleep(0)
                given.append(event)
                yield event

        stream = play()
        try:
            yield stream
        finally:
            await stream.aclose()
            if not given or not isinstance(given[-1], Finished | Failed):
                self.cancelled.append(request.id)

    async def status(self) -> EngineStatus:
        return self._status

    async def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        """A token for every four characters, so that a test can foresee the counts."""
        turns = prompt.turns if isinstance(prompt, ChatPrompt) else ()
        turn_tokens = tuple(-(-len(turn.content) // 4) for turn in turns)
        snippet_tokens = tuple(-(-len(snippet.text) // 4) for snippet in prompt.snippets)
        return PromptCost(
            total_tokens=sum(turn_tokens) + sum(snippet_tokens),
            turn_tokens=turn_tokens,
            snippet_tokens=snippet_tokens,
            context_limit=self._status.context_limit,
        )

    async def steer(self, request_id: str, steering: Steering) -> None:
        self.steered.append((request_id, steering))

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[EngineStatus]]:
        async def changes() -> AsyncIterator[EngineStatus]:
            yield self._status
            while True:
                yield await self.statuses.get()

        stream = changes()
        try:
            yield stream
        finally:
            await stream.aclose()

    async def use_model(self, name: str) -> None:
        self.models.append(name)

    async def stop_loading(self) -> None:
        self.stopped += 1

    def close(self) -> None:
        self.closed = True


def round_of(
    *, drafted: int, accepted: int, context: int = 100, ms: float = 20.0, reason: str = ""
) -> RoundDone:
    """A round as the engine reports it; drafting nothing makes it a plain one."""
    return RoundDone(
        route="copy" if drafted else "plain",
        k=drafted,
        drafted=drafted,
        tested=min(accepted + 1, drafted),
        accepted=accepted,
        draft_ms=ms / 4 if drafted else 0.0,
        verify_ms=ms / 2,
        round_ms=ms,
        context_tokens=context,
        mode="speculating" if drafted else "plain",
        reason=reason,
    )


def _last_kind(played: RoundDone) -> TokenKind:
    """The kind of the token that a round adds to those it accepted."""
    if not played.drafted:
        return "plain"
    return "bonus" if played.accepted == played.drafted else "recovered"


def answer_script(
    text: str,
    rounds: Sequence[RoundDone] = (),
    *,
    reason: FinishReason = "stop",
    plain_tokens_per_s: float | None = 50.0,
) -> list[Event]:
    """A whole stream that answers `text`: one word a token, dealt over `rounds`.

    Every round emits accepted + 1 tokens; what the rounds don't cover comes one token a round.
    """
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1][:-1]
    events: list[Event] = [Started(prompt_tokens=10, cached_tokens=4)]
    played: list[RoundDone] = []
    while words:
        played.append(
            rounds[len(played)]
            if len(played) < len(rounds)
            else round_of(drafted=0, accepted=0, reason="nothing to copy")
        )
        emitted = [words.pop(0) for _ in range(min(played[-1].accepted + 1, len(words)))]
        kinds: list[TokenKind] = ["accepted"] * (len(emitted) - 1)
        events += [
            TextDelta(
                text="".join(emitted),
                kinds=(*kinds, _last_kind(played[-1])),
                spans=tuple(len(word) for word in emitted),
            ),
            played[-1],
        ]
    usage = Usage(
        prompt_tokens=10,
        cached_tokens=4,
        output_tokens=len(text.split(" ")),
        prefill_ms=30.0,
        decode_ms=sum(one.round_ms for one in played),
        rounds=len(played),
        drafted=sum(one.drafted for one in played),
        tested=sum(one.tested for one in played),
        accepted=sum(one.accepted for one in played),
        plain_tokens_per_s=plain_tokens_per_s,
    )
    return [*events, Finished(reason=reason, text=text, usage=usage)]
