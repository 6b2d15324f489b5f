"""Which kernels will run a model on a machine, and what may be claimed of them, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.machine import Machine
    from app.settings import ModelSettings
    from engine.memory_plan import Kernels


def kernel_sentence(kernels: Kernels, wanted: ModelSettings) -> str:
    """Which kernels run the weights, and what may therefore be claimed of greedy text."""
    if kernels == "cuda":
        return (
            "CUDA kernels change with the number of rows: with speculation every token follows the "
            "same law as without, but greedy text may differ where two tokens are nearly level"
        )
    same_bits = "greedy text with speculation is bit-identical to plain decoding"
    if wanted.quant != "nf4":
        weights = "bf16" if wanted.quant == "none" else wanted.quant
        return f"{weights} weights, each row computed alike in any company: {same_bits}"
    if kernels == "cpu_packed":
        return f"NF4 stays packed (AVX512-BF16) and rows don't influence each other: {same_bits}"
    return (
        "without AVX512-BF16 every call writes each NF4 matrix out in full first: decoding is "
        "slow, more rows cost little, and the claim is the same law, not the same bits"
    )


def pass_sentence(kernels: Kernels, wanted: ModelSettings, machine: Machine) -> str:
    """Whether the C kernels will run the model."""
    if not wanted.native:
        return "switched off by the settings"
    if kernels != "cpu_packed" or wanted.quant != "nf4":
        return "not used: it is for NF4 weights on a CPU with AVX512-BF16"
    if machine.no_kernels:
        return f"not used: {machine.no_kernels}. Without it a token takes about twice as long"
    return "a C compiler is here: kernels are compiled at the first start, and kept"
