"""What to suspect when answers are slow or wrong: symptom, first suspect, remedy, as data.

Only rows about what this version can do are here; each remedy is a command or an option that
exists. `doctor --symptoms` prints them.
"""

from __future__ import annotations

from msgspec import Struct


class Symptom(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    symptom: str
    suspect: str
    remedy: str


SYMPTOMS: tuple[Symptom, ...] = (
    Symptom(
        symptom="Less than 1.1 × plain, and fewer than two thirds of the tested tokens accepted",
        suspect="the draft guesses badly: too few layers, or nothing in the prompt to copy",
        remedy="try a deeper --exit-layer, or --route copy where the answer repeats the input",
    ),
    Symptom(
        symptom="Many tokens accepted, yet hardly faster than plain decoding",
        suspect="drafting or verifying costs more here than the choice of k assumes",
        remedy="keep --policy cost, which uses measured times, and let bench show them per route",
    ),
    Symptom(
        symptom="Fast at first, no gain any more in a long conversation",
        suspect="attention over the context has become the larger part of every pass",
        remedy="nothing to do: k shrinks and below 2 plain decoding takes over, with the reason "
        "in the statistics; a shorter prompt brings the gain back",
    ),
    Symptom(
        symptom="A word or a line appears twice where plain decoding has it once",
        suspect="a rejected draft was rolled back one token short",
        remedy="run verify: it names the route, the k and the first token that differs",
    ),
    Symptom(
        symptom="Every answer is nonsense, with and without speculation",
        suspect="the weights: a damaged file, or a model that is not what its config says",
        remedy="run doctor on it, then models rm and models pull to fetch it anew",
    ),
    Symptom(
        symptom="Greedy text differs between plain and speculative decoding",
        suspect="kernels whose rounding depends on the number of rows: see 'kernels' in the report",
        remedy="on a CPU with AVX512-BF16 that must not happen: run verify and report what it "
        "prints; elsewhere only the law is the same",
    ),
    Symptom(
        symptom="More memory in use than the weights explain",
        suspect="the KV cache, which grows with the context and the number of conversations",
        remedy="read the memory plan of doctor, then choose a smaller --context",
    ),
    Symptom(
        symptom="Lists, JSON or edits come several times faster than prose",
        suspect="nothing wrong: such text repeats itself and copying predicts it",
        remedy="let k be larger for them by leaving --k open",
    ),
    Symptom(
        symptom="One kind of task is much slower than the others",
        suspect="the draft knows that kind of text less well: its α is low there",
        remedy="keep --route auto, which judges every request by itself; train-head --repo DIR "
        "makes a draft from the model's own answers about your code",
    ),
    Symptom(
        symptom="All decoding is several times slower than expected, with every route",
        suspect="a CPU without AVX512-BF16, or more threads than physical cores",
        remedy="see 'kernels' in the report; try --quant int8, and leave --threads at its default",
    ),
)
