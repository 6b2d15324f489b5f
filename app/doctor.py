"""`doctor`: what this machine, this model and this amount of memory will give, before loading.

`diagnose` takes facts (settings, machine, folders) and returns a report of sections and problems.
It fetches nothing and loads nothing: a model that is not on this machine is planned from its
published sizes where they are known. How a report looks on a terminal is `doctor_cli.py`'s.

Invariant: every problem carries a remedy, and the exit code is that of the gravest one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app.kernel_words import kernel_sentence, pass_sentence
from app.machine import Machine, folder_bytes, hub_cache
from engine import memory_plan
from engine.memory_plan import Kernels, MemoryPlan, ModelSizes, gib, preset_of
from engine.preflight import Inspection, inspect
from engine.protocol import EngineError, MemoryLimitError, ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.paths import Paths
    from app.settings import ModelSettings

OLDEST_BITSANDBYTES = (0, 50)
"""Earlier releases write every matrix out in full as soon as two rows are verified at once."""

Facts = tuple[tuple[str, str], ...]


class Section(Struct, frozen=True, kw_only=True):
    """A titled list of facts, each a name and a value."""

    title: str
    facts: Facts


class Problem(Struct, frozen=True, kw_only=True):
    """Something that keeps the model from running as asked."""

    code: str
    message: str
    hint: str
    exit_code: int


class Report(Struct, frozen=True, kw_only=True):
    """Everything that was found."""

    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]

    @property
    def exit_code(self) -> int:
        """0 without problems, else the first of model (3), memory (4), usage (2), check (1)."""
        codes = {problem.exit_code for problem in self.problems}
        return next((code for code in (3, 4, 2, 1) if code in codes), 0)


def diagnose(
    wanted: ModelSettings, card_bytes: int | None, machine: Machine, paths: Paths
) -> Report:
    """Examine `wanted` on `machine`, or on a card of `card_bytes` that one does not have."""
    available, kernels = _budget(wanted, card_bytes, machine)
    sections = [_environment(machine), _device(wanted, machine), _caches(paths)]
    problems = list(_machine_problems(wanted, card_bytes, machine))
    try:
        sizes, facts = _examine(wanted.model, paths)
    except ModelError as refused:
        problems.append(_problem(refused))
    else:
        made = memory_plan.plan_within(
            sizes,
            quant=wanted.quant,
            context_tokens=wanted.context,
            least_rows=wanted.load().rows,
            available_bytes=available,
            kernels=kernels,
        )
        gpu = "a card of that size" if card_bytes else "the GPU"
        where = gpu if kernels == "cuda" else "this machine"
        sections += [Section(title="Model", facts=facts), _plan_section(made, sizes, where)]
        problems += _plan_problems(made, sizes, wanted.model)
    return Report(sections=tuple(sections), problems=tuple(problems))


def _budget(wanted: ModelSettings, card_bytes: int | None, machine: Machine) -> tuple[int, Kernels]:
    """Bytes that may be used, and what will run there."""
    if card_bytes is not None:
        return card_bytes, "cuda"
    if machine.cuda is not None and wanted.device != "cpu":
        return machine.cuda.free_bytes, "cuda"
    return machine.available_bytes, "cpu_packed" if machine.avx512_bf16 else "cpu_dequant"


def _environment(machine: Machine) -> Section:
    versions = ((name, version or "not installed") for name, version in machine.packages.items())
    facts = (("python", f"{machine.python} on {machine.system}"), *versions)
    return Section(title="Environment", facts=facts)


def _device(wanted: ModelSettings, machine: Machine) -> Section:
    _, kernels = _budget(wanted, None, machine)
    cuda = "none that torch sees"
    if machine.cuda is not None:
        free, total = gib(machine.cuda.free_bytes), gib(machine.cuda.total_bytes)
        cuda = f"{machine.cuda.name}, {free} of {total} free"
    return Section(
        title="Device",
        facts=(
            ("cpu", f"{machine.cpu}, physical cores: {machine.physical_cores}"),
            ("avx512-bf16", "present" if machine.avx512_bf16 else "absent"),
            ("memory", f"{gib(machine.available_bytes)} available"),
            ("cuda", cuda),
            ("kernels", kernel_sentence(kernels, wanted)),
            ("compiled pass", pass_sentence(kernels, wanted, machine)),
        ),
    )


def _caches(paths: Paths) -> Section:
    places = {
        "models": paths.models_dir(),
        "converted": paths.converted_dir(),
        "hub cache": hub_cache(os.environ),
    }
    facts = [(name, f"{gib(folder_bytes(at))} in {at}") for name, at in places.items()]
    there = next(at for at in (paths.cache, *paths.cache.parents) if at.exists())
    facts.append(("disk", f"{gib(shutil.disk_usage(there).free)} free for them"))
    return Section(title="Caches", facts=tuple(facts))


def _examine(spec: str, paths: Paths) -> tuple[ModelSizes, Facts]:
    """Sizes of the model called `spec` and what to say of it; `ModelError` if it can't be used."""
    place = _place_of(spec, paths)
    if place is not None:
        seen = inspect(place)
        return seen.sizes, _model_facts(spec, seen)
    sizes = preset_of(spec)
    if sizes is None:
        raise ModelError(
            "model_absent",
            f"{spec} is not on this machine, and its sizes are not known here",
            f"Fetch it with: sspec-assist models pull {spec}",
        )
    return sizes, (
        ("name", spec),
        ("files", "not on this machine; planned from the published sizes"),
        ("sizes", _sizes_text(sizes)),
    )


def _place_of(spec: str, paths: Paths) -> Path | None:
    """Where the model lies; None if it would have to be fetched.

    Raises `ModelError` for a path that leads nowhere and for a name nobody knows.
    """
    from app import model_store
    from app.catalogue import CATALOGUE
    from app.snapshot import HUB_ID

    place = Path(os.path.expanduser(spec))  # noqa: PTH111 - Path's raises for an unknown user
    named = spec.lower() in CATALOGUE
    if not named and place.exists():
        return place
    if not named and not HUB_ID.fullmatch(spec) and preset_of(spec) is None:
        looks_like_path = "/" in spec or "\\" in spec or place.suffix == ".gguf"
        return place if looks_like_path else model_store.path(spec, paths)
    try:
        return model_store.path(spec, paths)
    except ModelError:
        return None


def _model_facts(spec: str, seen: Inspection) -> Facts:
    count = len(seen.weight_files)
    files = seen.weight_files[0] if count == 1 else f"{count} files"
    notes = (("note", warning) for warning in seen.warnings)
    return (
        ("name", spec),
        ("place", str(seen.path)),
        ("files", f"{files}, {gib(seen.weight_bytes)}, whole according to their headers"),
        ("family", seen.family),
        ("sizes", _sizes_text(seen.sizes)),
        ("chat", "template found" if seen.has_chat_template else "no template"),
        *notes,
    )


def _sizes_text(sizes: ModelSizes) -> str:
    return (
        f"{sizes.parameters / 1e9:.2f} billion parameters, {sizes.layers} layers, "
        f"hidden {sizes.hidden}, heads {sizes.heads}/{sizes.kv_heads}, "
        f"vocabulary {sizes.vocab:,}, context {sizes.context_tokens:,} tokens"
    )


def _plan_section(made: MemoryPlan, sizes: ModelSizes, where: str) -> Section:
    per_token = f"{sizes.kv_bytes_per_token / 1024:g} KiB a token"
    kv = f"{made.rows} conversations × {made.context_tokens:,} tokens, {per_token}"
    weights = (
        "body and LM head in bf16"
        if made.quant == "none"
        else (f"body and LM head in {made.quant}, embedding table in bf16")
    )
    verdict = "fits" if made.fits else "does not fit"
    return Section(
        title=f"Memory plan for {where}",
        facts=(
            ("weights", f"{gib(made.weights):>10}  {weights}"),
            ("kv cache", f"{gib(made.kv):>10}  {kv}"),
            ("workspace", f"{gib(made.workspace):>10}  logits, one prefill chunk, its mask"),
            ("margin", f"{gib(made.margin):>10}  runtime and fragments"),
            ("total", f"{gib(made.total):>10}  {verdict} into {gib(made.available)}"),
            ("longest", f"{made.longest_context:>10,}  tokens per conversation would fit"),
        ),
    )


def _machine_problems(
    wanted: ModelSettings, card_bytes: int | None, machine: Machine
) -> Iterator[Problem]:
    for name, version in machine.packages.items():
        if version is None:
            hint = "Install sspec-assist again into an environment of its own."
            message = f"the package {name} is not installed"
            yield Problem(code="package_missing", message=message, hint=hint, exit_code=1)
    version = machine.packages.get("bitsandbytes")
    if version and _release(version) < OLDEST_BITSANDBYTES:
        oldest = ".".join(map(str, OLDEST_BITSANDBYTES))
        yield Problem(
            code="package_old",
            message=f"bitsandbytes {version} is older than {oldest}, so verifying costs more than "
            "it saves",
            hint=f"Install bitsandbytes {oldest} or later.",
            exit_code=1,
        )
    if wanted.device == "cuda" and machine.cuda is None and card_bytes is None:
        yield Problem(
            code="no_cuda",
            message="the device cuda was asked for, and torch sees no CUDA device",
            hint="Use --device cpu, or install the driver and torch's CUDA build.",
            exit_code=3,
        )


def _plan_problems(made: MemoryPlan, sizes: ModelSizes, name: str) -> Iterator[Problem]:
    if made.context_tokens > sizes.context_tokens:
        yield Problem(
            code="bad_setting",
            message=f"a context of {made.context_tokens:,} tokens is longer than the "
            f"{sizes.context_tokens:,} that {name} was trained for",
            hint=f"Choose at most --context {sizes.context_tokens}.",
            exit_code=2,
        )
    try:
        made.require_fits(name)
    except MemoryLimitError as refused:
        yield _problem(refused)


def _problem(error: EngineError) -> Problem:
    return Problem(
        code=error.code, message=error.message, hint=error.hint, exit_code=error.exit_code
    )


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 50, 2) of "0.50.2.dev0"."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
