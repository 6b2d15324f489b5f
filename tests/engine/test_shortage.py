"""Memory that runs out in an answer: less is tried, what was said is kept, the session goes on."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.answer import LEAST_STRETCH
from engine.decode import PREFILL_TOKENS
from engine.model import Model
from engine.out_of_memory import is_out_of_memory, shortage, told
from engine.protocol import (
    Event,
    MemoryLimitError,
    ModelError,
    RequestError,
    RoundDone,
    RouteChoice,
    SamplingParams,
    Steering,
    TextDelta,
)
from engine.session import Session

from .paced import with_model
from .stream_rules import check_stream
from .tiny import tiny_architecture, tiny_tensors
from .tiny_session import LAYERS, answered, ask, finish, text_of, tiny_session, vocabulary


def cpu_shortage() -> RuntimeError:
    """What torch raises on the CPU, from the real thing."""
    try:
        torch.empty(1 << 50, dtype=torch.int8)
    except RuntimeError as error:
        return error
    raise AssertionError("a PiB was given")


class NarrowModel(Model):
    """A model that has memory for passes of `most` tokens and no more."""

    def __init__(self, context: int = 1024) -> None:
        arch = tiny_architecture(layers=LAYERS, vocab=vocabulary())
        super().__init__(arch, tiny_tensors(arch, "nf4"), context_tokens=context)
        self.most = context
        self.breaks_in = LAYERS - 1
        """The layer that needs the memory."""
        self.error: Callable[[], BaseException] = cpu_shortage
        self.widths: list[int] = []

    def _run_layer(self, index: int, hidden: Tensor, *rest: Any) -> Tensor:
        if index == self.breaks_in:
            self.widths.append(len(hidden))
            if len(hidden) > self.most:
                raise self.error()
        return super()._run_layer(index, hidden, *rest)


def narrow(context: int = 1024, *, rows: int = 3) -> tuple[Session, NarrowModel]:
    model = NarrowModel(context)
    return tiny_session(with_model(model), rows=rows), model


def rounds_of(events: list[Event]) -> list[RoundDone]:
    return [event for event in events if isinstance(event, RoundDone)]


def some_ids(count: int, seed: int = 1) -> list[int]:
    return [(seed * 37 + i * 11) % 250 for i in range(count)]


# Recognising it


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (cpu_shortage(), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (RequestError("context_full", "the context is out of memory", ""), False),
    ],
    ids=repr,
)
def test_what_counts_as_memory_that_ran_out(error: BaseException, is_one: bool) -> None:
    assert is_out_of_memory(error) is is_one


def test_the_error_has_the_numbers() -> None:
    error = shortage("while the moon rose", "Wait.")
    assert (error.code, error.exit_code, error.hint) == ("out_of_memory", 4, "Wait.")
    assert error.message.startswith("memory ran out while the moon rose: this process holds ")
    assert error.message.count("iB") == 2


@pytest.mark.parametrize("error", [ModelError("x", "y", "z"), ValueError("no")])
def test_other_errors_pass_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, told("anywhere", ""):
        raise error
    assert caught.value is error


def test_memory_that_runs_out_inside_is_told() -> None:
    with (
        pytest.raises(MemoryLimitError, match="while it rained") as caught,
        told("while it rained", ""),
    ):
        torch.empty(1 << 50, dtype=torch.int8)
    with pytest.raises(MemoryLimitError, match="as it was") as caught, told("while", ""):
        raise MemoryLimitError("memory_short", "as it was", "")
    assert caught.value.code == "memory_short"


# A round


@pytest.mark.parametrize(
    ("route", "k", "breaks_in"),
    [("layer_skip", 4, LAYERS - 1), ("copy", 3, 0), ("copy", 3, LAYERS - 1), ("auto", None, 1)],
)
def test_without_memory_for_drafts_the_text_is_the_same_and_plain(
    route: RouteChoice, k: int | None, breaks_in: int
) -> None:
    request = ask(route=route, k=k, sampling=SamplingParams(max_tokens=40, repetition_penalty=0.5))
    prompt = some_ids(12) * 2
    wanted = tiny_session().start_ids(request, prompt, frozenset())
    text = text_of(finish(wanted))
    session, model = narrow()
    answer = session.start_ids(request, prompt, frozenset())
    events: list[Event] = [answer.started()]
    events += answer.step()
    model.most, model.breaks_in = 1, breaks_in
    before = len(model.widths)
    while not answer.done:
        events += answer.step()
    check_stream(events)
    assert text_of(events) == text
    plain = [one for one in rounds_of(events) if "memory ran out" in one.reason]
    assert plain, "it did run out"
    assert all((one.route, one.k, one.mode) == ("plain", 0, "plain") for one in plain)
    assert rounds_of(events)[-len(plain) :] == plain, "it drafts no more"
    failed = sum(width > 1 for width in model.widths[before:])
    assert failed == 1, "what failed once is not tried again and again"


def test_the_user_may_ask_for_drafts_again() -> None:
    session, model = narrow()
    answer = session.start(ask(route="layer_skip", k=3, sampling=SamplingParams(max_tokens=30)))
    list(answer.step())
    model.most = 1
    assert rounds_of(list(answer.step()))[0].drafted == 0
    model.most = 1024
    assert rounds_of(list(answer.step()))[0].drafted == 0
    answer.steer(Steering(route="layer_skip", k=3))
    assert rounds_of(list(answer.step()))[0].drafted == 3


def test_the_rows_that_are_free_give_their_memory_up(caplog: pytest.LogCaptureFixture) -> None:
    session, model = narrow()
    earlier = ask("an earlier question", id="earlier")
    answered(session, earlier)
    assert max(session.slots.cache.lengths) > 0
    answer = session.start(ask(route="layer_skip", k=3))
    list(answer.step())
    model.most = 1
    with caplog.at_level(logging.WARNING):
        list(answer.step())
    lengths = session.slots.cache.lengths
    assert sum(length > 0 for length in lengths) == 1
    assert lengths[answer.row.cache_row] > 0
    assert "memory ran out in answer ask: decoding plainly" in caplog.text


def test_an_answer_that_can_not_go_on_even_plainly_keeps_what_it_said() -> None:
    session, model = narrow(rows=1)
    answer = session.start(ask(sampling=SamplingParams(max_tokens=40)))
    events: list[Event] = []
    while len(rounds_of(events)) < 5:
        events += answer.step()
    model.most = 0
    with pytest.raises(RuntimeError, match="allocate memory"):
        list(answer.step())
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    rest = answer.rest()
    said += rest.text if rest is not None else ""
    assert said == session.loaded.text.decode(answer.row.output)
    answer.close()
    model.most = 1024
    again = ask(sampling=SamplingParams(max_tokens=40))
    assert text_of(answered(session, again)) == text_of(answered(tiny_session(), again))


def test_an_error_of_another_kind_is_not_tried_again() -> None:
    session, model = narrow()
    answer = session.start(ask(route="layer_skip", k=3))
    list(answer.step())
    model.most, model.error = 1, lambda: ValueError("a bug")
    before = len(model.widths)
    with pytest.raises(ValueError, match="a bug"):
        list(answer.step())
    assert [width for width in model.widths[before:] if width > 1] == [4]


# Prefill


@pytest.mark.parametrize("most", [400, 256, 100, 33, LEAST_STRETCH])
def test_a_prompt_is_read_in_stretches_that_fit(most: int) -> None:
    session, model = narrow()
    prompt = some_ids(700)
    request = ask(route="plain", sampling=SamplingParams(max_tokens=8))
    model.most = most
    answer = session.start_ids(request, prompt, frozenset())
    events = finish(answer)
    check_stream(events)
    fitting = [width for width in model.widths if width <= most]
    largest = max(PREFILL_TOKENS >> n for n in range(6) if PREFILL_TOKENS >> n <= most)
    assert max(fitting) == largest
    assert sum(width for width in fitting if width > 1) + 1 >= 699
    wanted = tiny_session(with_model(NarrowModel())).start_ids(request, prompt, frozenset())
    finish(wanted)
    assert answer.row.output == wanted.row.output


def test_a_prompt_that_fits_in_no_stretch_fails_and_harms_nothing() -> None:
    session, model = narrow()
    model.most = LEAST_STRETCH - 1
    answer = session.start_ids(ask(), some_ids(700), frozenset())
    with pytest.raises(RuntimeError, match="allocate memory"):
        list(answer.step())
    answer.close()
    model.most = 1024
    again = session.start_ids(ask(route="plain"), some_ids(700), frozenset())
    assert again.cached_tokens == 0
    finish(again)


def test_what_a_failed_pass_had_allocated_is_gone_when_it_is_tried_again() -> None:
    """Else the second attempt would have less room than the first."""
    import weakref

    session, model = narrow()
    kept: list[weakref.ref[Tensor]] = []
    alive: list[bool] = []
    run = model._run_layer

    def watched(index: int, hidden: Tensor, *rest: Any) -> Tensor:
        if index == 0:
            alive.append(any(ref() is not None for ref in kept))
            kept.append(weakref.ref(hidden))
        return run(index, hidden, *rest)

    model._run_layer = watched  # type: ignore[method-assign]
    model.most = 256
    answer = session.start_ids(ask(), some_ids(400), frozenset())
    list(answer.step())
    assert alive == [False, False], "one pass that failed, one that did not"


# The cache itself


class CrampedModel(NarrowModel):
    """Has memory for a KV cache of `rows` rows."""

    rows = 1

    def new_cache(self, rows: int) -> Any:
        if rows > self.rows:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return super().new_cache(rows)


def test_a_session_takes_as_many_rows_as_there_is_memory_for() -> None:
    model = CrampedModel()
    model.rows = 2
    assert tiny_session(with_model(model), rows=4).slots.cache.rows == 2
    model.rows = 0
    with pytest.raises(MemoryLimitError, match="KV cache for 1,024 tokens") as caught:
        tiny_session(with_model(model), rows=4)
    assert "--context" in caught.value.hint
