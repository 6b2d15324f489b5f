"""The cache against a list of what was written, and the model over it against a fresh start."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from engine.cache import KVCache
from engine.families import Architecture
from engine.model import Model
from engine.protocol import RequestError

from .tiny import tiny_model

CPU = torch.device("cpu")
ROWS, SLOTS, LAYERS, HEADS, WIDE = 3, 12, 2, 2, 4
VOCAB = 96
POISON = 1e4
NARROW = Architecture(
    family="llama",
    layers=LAYERS,
    hidden=8,
    heads=HEADS,
    kv_heads=HEADS,
    head_dim=WIDE,
    feed_forward=8,
    vocab=8,
    context_tokens=SLOTS,
)
MODELS = {quant: tiny_model(quant) for quant in ("nf4", "none")}

Operation = tuple[str, "int | list[int]"]


def small_cache() -> KVCache:
    return KVCache(NARROW, rows=ROWS, slots=SLOTS, dtype=torch.float32, device=CPU)


def stamps(tokens: Sequence[int], layer: int, sign: int) -> Tensor:  # (T, G, E)
    """A block that names its token, its layer and whether it is a key or a value."""
    names = sign * (10 * torch.tensor(tokens, dtype=torch.float32) + layer)
    place = torch.arange(WIDE) / 8 + torch.arange(HEADS)[:, None] / 2
    return names[:, None, None] + place


class CacheMachine(RuleBasedStateMachine):
    """Any sequence of calls leaves every row with exactly what a list would hold."""

    @initialize()
    def start(self) -> None:
        self.cache = small_cache()
        self.held: list[list[int]] = [[] for _ in range(ROWS)]
        self.stamp = itertools.count(1)

    @rule(row=st.integers(0, ROWS - 1), count=st.integers(1, SLOTS))
    def feed(self, row: int, count: int) -> None:
        fits = len(self.held[row]) + count <= SLOTS
        assert self.cache.can_extend(row, count) == fits
        if not fits:
            with pytest.raises(RequestError, match=str(SLOTS)):
                self.cache.extend(row, count)
            return
        span = self.cache.extend(row, count)
        assert (span.row, span.start, span.count) == (row, len(self.held[row]), count)
        assert span.end == len(self.held[row]) + count
        tokens = [next(self.stamp) for _ in range(count)]
        for layer in range(LAYERS):
            self.cache.write(layer, span, stamps(tokens, layer, 1), stamps(tokens, layer, -1))
        self.held[row] += tokens

    @rule(row=st.integers(0, ROWS - 1), share=st.floats(0, 1))
    def rollback(self, row: int, share: float) -> None:
        length = round(share * len(self.held[row]))
        self.cache.rollback(row, length)
        del self.held[row][length:]

    @rule(row=st.integers(0, ROWS - 1), further=st.integers(1, 3))
    def never_rolls_forward(self, row: int, further: int) -> None:
        with pytest.raises(AssertionError, match="rolled back"):
            self.cache.rollback(row, len(self.held[row]) + further)

    @rule(source=st.integers(0, ROWS - 1), onto=st.integers(0, ROWS - 1), share=st.floats(0, 1))
    def fork(self, source: int, onto: int, share: float) -> None:
        length = round(share * len(self.held[source]))
        self.cache.fork(source, onto, length)
        self.held[onto] = self.held[source][:length]

    @precondition(lambda self: any(self.held))
    @rule(source=st.integers(0, ROWS - 1), onto=st.integers(0, ROWS - 1))
    def forks_only_what_was_written(self, source: int, onto: int) -> None:
        with pytest.raises(AssertionError, match="fork"):
            self.cache.fork(source, onto, len(self.held[source]) + 1)

    @rule(row=st.integers(0, ROWS - 1), off=st.sampled_from([-1, 1]))
    def check_names_a_wrong_pointer(self, row: int, off: int) -> None:
        with pytest.raises(AssertionError, match="write pointer"):
            self.cache.check(row, len(self.held[row]) + off)

    @invariant()
    def every_row_holds_its_tokens(self) -> None:
        for row, tokens in enumerate(self.held):
            self.cache.check(row, len(tokens))
            if not tokens:
                continue
            for layer in range(LAYERS):
                keys, values = self.cache.view(layer, row, 0, len(tokens))
                assert torch.equal(keys[0], stamps(tokens, layer, 1).transpose(0, 1))
                assert torch.equal(values[0], stamps(tokens, layer, -1).transpose(0, 1))


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, derandomize=True
)


def test_a_view_is_the_slots_asked_for() -> None:
    cache = small_cache()
    span = cache.extend(1, 5)
    cache.write(0, span, stamps([1, 2, 3, 4, 5], 0, 1), stamps([1, 2, 3, 4, 5], 0, -1))
    keys, values = cache.view(0, 1, 2, 4)
    assert keys.shape == values.shape == (1, HEADS, 2, WIDE)
    assert torch.equal(keys[0], stamps([3, 4], 0, 1).transpose(0, 1))


def test_bytes_per_token_are_those_of_both_blocks_in_all_layers() -> None:
    assert small_cache().bytes_per_token == 2 * LAYERS * HEADS * WIDE * 4


@torch.inference_mode()
def feed(model: Model, cache: KVCache, row: int, tokens: Sequence[int]) -> Tensor:  # (T, V)
    span = cache.extend(row, len(tokens))
    hidden = model.run_layers(
        model.embed(torch.tensor(tokens)), [span], cache, first=0, stop=model.architecture.layers
    )
    return model.logits(hidden)


def scores_after(model: Model, cache: KVCache, row: int, tokens: Sequence[int]) -> Tensor:
    """The logits of one more token, the same one always; the row is left as it was."""
    logits = feed(model, cache, row, [5])
    cache.rollback(row, len(tokens))
    cache.check(row, len(tokens))
    return logits


def from_scratch(model: Model, tokens: Sequence[int], chunk: int) -> Tensor:
    cache = model.new_cache(1)
    for at in range(0, len(tokens), chunk):
        feed(model, cache, 0, tokens[at : at + chunk])
    return scores_after(model, cache, 0, tokens)


def poison_beyond_pointers(cache: KVCache) -> None:
    """Overwrite every slot that is free."""
    for block in (*cache.keys, *cache.values):
        for row, length in enumerate(cache.lengths):
            block[row, :, length:] = POISON


def check_same_as_fresh(
    model: Model, cache: KVCache, operations: Sequence[Operation], chunk: int = 7
) -> None:
    """After any operations, each row answers like a fresh cache that was fed the same tokens."""
    held: list[list[int]] = [[] for _ in range(cache.rows)]
    row = 0
    for name, value in operations:
        if name == "feed":
            assert isinstance(value, list)
            feed(model, cache, row, value)
            held[row] += value
            continue
        assert isinstance(value, int)
        if name == "rollback":
            length = min(value, len(held[row]))
            cache.rollback(row, length)
            del held[row][length:]
        elif name == "fork":
            other = (row + 1) % cache.rows
            length = min(value, len(held[row]))
            cache.fork(row, other, length)
            held[other] = held[row][:length]
            row = other
        else:
            row = value % cache.rows
        poison_beyond_pointers(cache)
    for at, tokens in enumerate(held):
        assert torch.equal(
            scores_after(model, cache, at, tokens), from_scratch(model, tokens, chunk)
        ), f"row {at} does not answer like a fresh one"


def check_fork(model: Model, cache: KVCache) -> None:
    """A fork goes its own way and leaves its source alone."""
    tokens = [(5 * i + 1) % VOCAB for i in range(30)]
    check_same_as_fresh(
        model,
        cache,
        [
            ("feed", tokens),
            ("fork", 30),
            ("feed", tokens[3:9]),
            ("go", 0),
            ("feed", tokens[::-1]),
        ],
    )


some_tokens = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=24)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), some_tokens),
        st.tuples(st.just("feed"), some_tokens),
        st.tuples(st.just("rollback"), st.integers(0, 60)),
        st.tuples(st.just("fork"), st.integers(0, 60)),
        st.tuples(st.just("go"), st.integers(0, 1)),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("quant", MODELS)
@given(operations=operations, chunk=st.integers(1, 64), dirty=st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_rows_answer_like_fresh_ones_bit_for_bit(
    quant: str, operations: list[Operation], chunk: int, dirty: bool
) -> None:
    model = MODELS[quant]
    cache = model.new_cache(2)
    if dirty:
        poison_beyond_pointers(cache)
    check_same_as_fresh(model, cache, operations, chunk)


def test_a_fork_goes_its_own_way() -> None:
    check_fork(MODELS["nf4"], MODELS["nf4"].new_cache(2))


@pytest.mark.parametrize("window", [5, 40])
def test_a_window_reads_no_free_slot_either(window: int) -> None:
    model = tiny_model(window=window)
    tokens = [(11 * i + 2) % VOCAB for i in range(90)]
    check_same_as_fresh(
        model,
        model.new_cache(2),
        [("feed", tokens[:60]), ("rollback", 33), ("feed", tokens[60:]), ("fork", 50)],
    )


def test_rows_of_one_pass_do_not_see_each_other() -> None:
    """Ragged spans in one call: every row gets the bits it gets alone."""
    model = MODELS["nf4"]
    prompts = [[(3 * i + s) % VOCAB for i in range(size)] for s, size in ((1, 9), (2, 30), (5, 1))]
    together = model.new_cache(3)
    with torch.inference_mode():
        spans = [together.extend(row, len(tokens)) for row, tokens in enumerate(prompts)]
        hidden = model.embed(torch.tensor([token for tokens in prompts for token in tokens]))
        logits = model.logits(model.run_layers(hidden, spans, together, first=0, stop=4))
    at = 0
    for tokens in prompts:
        alone = feed(model, model.new_cache(1), 0, tokens)
        assert torch.equal(logits[at : at + len(tokens)], alone)
        at += len(tokens)
