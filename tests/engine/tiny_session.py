"""A session over a random model and a trained-on-the-spot tokenizer, loaded by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from engine.answer import Answer
from engine.config import DraftSettings, Quant
from engine.costs import BucketCosts, CostTable
from engine.loading import Loaded
from engine.model import Model
from engine.protocol import (
    ChatPrompt,
    Event,
    FillPrompt,
    Finished,
    GenerateRequest,
    Priority,
    RouteChoice,
    SamplingParams,
    Turn,
)
from engine.session import Session
from engine.text import TextCodec

from .tiny import tiny_architecture, tiny_tensors
from .tiny_tokenizers import CHAT_MARKERS, QWEN_FILL, byte_level, save

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
)
LAYERS = 4


@cache
def codec() -> TextCodec:
    """Byte-level, with the markers of a conversation and of a fill."""
    with tempfile.TemporaryDirectory() as folder:
        files = save(
            Path(folder) / "tiny",
            byte_level((*CHAT_MARKERS, *QWEN_FILL)),
            template=TEMPLATE,
            config={"eos_token": "<|im_end|>"},
        )
        return TextCodec.from_folder(files)


@cache
def vocabulary() -> int:
    """Ids that the codec can decode."""
    return byte_level((*CHAT_MARKERS, *QWEN_FILL)).get_vocab_size()


@cache
def tiny_loaded(quant: Quant = "nf4", context: int = 512, seed: int = 0) -> Loaded:
    """A random model over that vocabulary."""
    arch = tiny_architecture(layers=LAYERS, vocab=vocabulary())
    return Loaded(
        model=Model(arch, tiny_tensors(arch, quant, seed), context_tokens=context),
        architecture=arch,
        text=codec(),
        digest="0" * 64,
        quant=quant,
        device="cpu",
        context_tokens=context,
        converted_now=False,
        folder=Path("nowhere"),
    )


def flat_costs(draft: float = 0.1, step: float = 0.05) -> CostTable:
    """Wide passes and draft steps are cheap, so that `auto` speculates."""
    ratio = [1.0 + step * rows for rows in range(33)]
    bucket = BucketCosts(
        unit_ms=1.0,
        passes=list(ratio),
        drafts={"layer_skip": [draft * k for k in range(1, 33)]},
        rests={"layer_skip": list(ratio)},
    )
    return CostTable(buckets={0: bucket})


def tiny_session(
    loaded: Loaded | None = None, *, rows: int = 2, settings: DraftSettings | None = None
) -> Session:
    """A fresh session; the model is shared, the cache is not."""
    return Session(
        loaded or tiny_loaded(),
        settings or DraftSettings(),
        flat_costs(),
        name="tiny",
        rows=rows,
    )


def ask(
    text: str = "What does this do?",
    *,
    id: str = "ask",  # noqa: A002
    route: RouteChoice = "auto",
    k: int | None = None,
    priority: Priority = "chat",
    sampling: SamplingParams | None = None,
    earlier: tuple[str, ...] = (),
    conversation: str | None = None,
) -> GenerateRequest:
    """A chat request; `earlier` are the turns before it, the user's first."""
    roles = ("user", "assistant")
    turns = [
        Turn(role="user" if i % 2 == 0 else "assistant", content=content)
        for i, content in enumerate((*earlier, text))
    ]
    assert turns[-1].role == roles[0]
    return GenerateRequest(
        id=id,
        prompt=ChatPrompt(turns=tuple(turns)),
        sampling=sampling or SamplingParams(max_tokens=40),
        priority=priority,
        route=route,
        k=k,
        conversation=conversation,
    )


def fill(
    prefix: str = "def load(path):\n",
    suffix: str = "\n",
    *,
    id: str = "fill",  # noqa: A002
    sampling: SamplingParams | None = None,
) -> GenerateRequest:
    """A completion request."""
    return GenerateRequest(
        id=id,
        prompt=FillPrompt(prefix=prefix, suffix=suffix),
        sampling=sampling or SamplingParams(max_tokens=12),
        priority="fill",
        client="editor",
    )


def finish(answer: Answer) -> list[Event]:
    """Every event of an answer."""
    events: list[Event] = [answer.started()]
    while not answer.done:
        events += answer.step()
    return events


def answered(session: Session, request: GenerateRequest) -> list[Event]:
    """Every event of a request."""
    return finish(session.start(request))


def text_of(events: Iterable[Event]) -> str:
    """The whole text, from the event that has it."""
    *_, last = events
    assert isinstance(last, Finished)
    return last.text
