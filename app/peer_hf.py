"""transformers' `generate` as arms of `bench`: plain, prompt lookup and assisted by an early exit.

The same weights, read by our own checkpoint readers and laid out dense in bfloat16 as transformers
wants them. Invariant: nothing is loaded unless there is memory for it, and nothing is fetched.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from engine.bench_results import Run
from engine.protocol import ChatPrompt, MemoryLimitError

if TYPE_CHECKING:
    from pathlib import Path

    from engine.bench import Arm
    from engine.cases import Case
    from engine.protocol import SamplingParams
    from engine.session import Session

LOOKUP_TOKENS = 10
"""Candidates of prompt lookup, the number of its authors' example."""
_SPARE_BYTES = 2 << 30


class HfArm:
    """One way to call `generate`."""

    def __init__(
        self, name: str, model: Any, session: Session, extra: dict[str, Any] | None = None
    ) -> None:
        self.name, self._model, self._session = name, model, session
        self._extra = extra or {}

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        """Decode the case once, timed from the first token to the last."""
        import torch

        text = self._session.loaded.text
        chat = isinstance(case.prompt, ChatPrompt)
        from engine.bench import prompt_ids
        from engine.out_of_memory import told

        ids = prompt_ids(self._session, case)
        clock = _Clock()
        drawn: dict[str, Any] = {"do_sample": False}
        if sampling.temperature:
            torch.manual_seed(sampling.seed or 0)
            drawn = {
                "do_sample": True,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
            }
        tensor = torch.tensor([ids], device=self._model.device)
        with torch.inference_mode(), told(f"in {self.name}", "Leave out --vs hf."):
            self._model.generate(
                tensor,
                attention_mask=torch.ones_like(tensor),
                max_new_tokens=sampling.max_tokens,
                eos_token_id=sorted(text.chat_stop_ids if chat else text.fill_stop_ids) or None,
                pad_token_id=0,
                streamer=clock,
                **drawn,
                **self._extra,
            )
        return clock.run(len(ids))


class _Clock:
    """What `generate` calls a streamer: it is put the prompt, then token by token or several."""

    def __init__(self) -> None:
        self._puts: list[tuple[float, int]] = []

    def put(self, value: Any) -> None:
        """Note when how many tokens came."""
        self._puts.append((time.perf_counter(), int(value.numel())))

    def end(self) -> None:
        """Nothing is held back."""

    def run(self, prompt_tokens: int) -> Run:
        """The tokens after the first put, and the time since, brought to all tokens."""
        _, (began, first), *rest = self._puts
        produced = first + sum(count for _, count in rest)
        timed = produced - first
        elapsed = 1e3 * (self._puts[-1][0] - began)
        decode_ms = elapsed * produced / timed if timed and elapsed > 0 else 1e-6
        return Run(prompt_tokens=prompt_tokens, output_tokens=produced, decode_ms=decode_ms)


def hf_arms(path: Path, session: Session) -> list[Arm]:
    """The three arms over one dense model from `path`. Raises `MemoryLimitError` if it does not
    fit beside the model that is loaded."""
    from engine.out_of_memory import told

    require_room(session)
    with told("while transformers' model was laid out", "Leave out --vs hf."):
        model = dense_model(path, session.loaded.device)
    exit_layer = max(1, session.loaded.architecture.layers // 2)
    lookup = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}
    return [
        HfArm("hf", model, session),
        HfArm("hf lookup", model, session, lookup),
        HfArm(f"hf exit {exit_layer}", model, session, {"assistant_early_exit": exit_layer}),
    ]


def require_room(session: Session) -> None:
    """Raise `MemoryLimitError` unless the dense model fits into what is free."""
    from engine.memory_plan import available_host_bytes, gib

    needed = dense_bytes(session) + _SPARE_BYTES
    free = available_host_bytes()
    if needed > free:
        raise MemoryLimitError(
            "no_room_for_peer",
            f"the same model dense in transformers takes about {gib(needed)}, {gib(free)} are free",
            "Leave out --vs hf, or bench a smaller model.",
        )


def dense_bytes(session: Session) -> int:
    """Bytes of the model in bfloat16."""
    arch = session.loaded.architecture
    attention = 2 * (arch.heads + arch.kv_heads) * arch.head_dim * arch.hidden
    inner = (3 if arch.gated else 2) * arch.feed_forward * arch.hidden
    return 2 * (arch.layers * (attention + inner) + 2 * arch.vocab * arch.hidden)


def dense_model(path: Path, device: str) -> Any:
    """transformers' own model with the weights of the checkpoint at `path`, in bfloat16."""
    import torch
    import transformers

    from engine.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(path)
    config = transformers.AutoConfig.for_model(**checkpoint.config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    wanted = set(model.state_dict())
    weights = {n: checkpoint.tensor(n).to(torch.bfloat16) for n in checkpoint.names() & wanted}
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    _make_buffers(model, config)
    # A generation config that comes with the weights would sample where greedy is asked for.
    model.generation_config = transformers.GenerationConfig()
    return model.to(device).eval()


def _make_buffers(model: Any, config: Any) -> None:
    """Modules that compute tables of their own, rotary ones, are built once more off the meta
    device, where nothing has values."""
    for name, module in list(model.named_modules()):
        if any(buffer.is_meta for buffer in module.buffers(recurse=False)):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, type(module)(config=config))
