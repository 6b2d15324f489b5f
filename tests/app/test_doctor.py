"""The report on made-up machines and small fixture models: facts, problems, exit codes, text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from app.catalogue import CATALOGUE
from app.cli import SentenceGroup
from app.doctor import Report, diagnose
from app.doctor_cli import doctor_command, parse_bytes, render, render_symptoms
from app.machine import CudaDevice, Machine, folder_bytes, hub_cache, this_machine
from app.paths import Paths, user_paths
from app.settings import ModelSettings
from app.symptoms import SYMPTOMS
from engine.memory_plan import GIB, preset_of
from engine.protocol import RequestError
from tests.engine import model_folders as made

PACKAGES = {"torch": "2.13.0+cpu", "transformers": "5.24.0", "bitsandbytes": "0.50.2"}


def machine(
    *,
    avx512_bf16: bool = True,
    available: int = 16 * GIB,
    cuda: CudaDevice | None = None,
    packages: dict[str, str | None] | None = None,
    no_kernels: str = "",
) -> Machine:
    return Machine(
        python="3.11.7",
        system="Linux x86_64",
        packages=PACKAGES | (packages or {}),
        cpu="Some CPU",
        physical_cores=4,
        avx512_bf16=avx512_bf16,
        available_bytes=available,
        cuda=cuda,
        no_kernels=no_kernels,
    )


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return user_paths({"SSPEC_ASSIST_CACHE": str(tmp_path / "cache")})


@pytest.fixture
def sound(tmp_path: Path) -> str:
    return str(made.sound_folder(tmp_path / "model"))


def fact(report: Report, title: str, name: str) -> str:
    section = next(section for section in report.sections if section.title.startswith(title))
    return dict(section.facts)[name]


def test_a_sound_model_on_a_good_machine_has_no_problems(sound: str, paths: Paths) -> None:
    report = diagnose(ModelSettings(model=sound), None, machine(), paths)
    assert (report.problems, report.exit_code) == ((), 0)
    assert fact(report, "Model", "family") == "llama"
    assert "512 tokens" in fact(report, "Memory plan", "kv cache")
    assert "fits into 16.00 GiB" in fact(report, "Memory plan", "total")
    assert "No problems found." in render(report)


def test_the_kernels_decide_what_is_claimed(sound: str, paths: Paths) -> None:
    card = CudaDevice(name="Card", free_bytes=20 * GIB, total_bytes=24 * GIB)

    def kernels(of: Machine, **settings: object) -> str:
        wanted = ModelSettings(model=sound, **settings)  # type: ignore[arg-type]
        return fact(diagnose(wanted, None, of, paths), "Device", "kernels")

    assert "bit-identical" in kernels(machine())
    assert "same law, not the same bits" in kernels(machine(avx512_bf16=False))
    assert "bit-identical" in kernels(machine(avx512_bf16=False), quant="int8")
    assert "same law" in kernels(machine(cuda=card))
    assert "bit-identical" in kernels(machine(cuda=card), device="cpu")


def test_it_says_whether_the_pass_is_compiled_and_what_that_takes(sound: str, paths: Paths) -> None:
    def compiled(of: Machine, **settings: object) -> str:
        wanted = ModelSettings(model=sound, **settings)  # type: ignore[arg-type]
        return fact(diagnose(wanted, None, of, paths), "Device", "compiled pass")

    assert "at the first start" in compiled(machine())
    without = compiled(machine(no_kernels="no C compiler was found (pip install ziglang)"))
    assert "pip install ziglang" in without
    assert "twice as long" in without
    assert "NF4" in compiled(machine(), quant="int8")
    assert "switched off" in compiled(machine(), native=False)


def test_the_plan_is_for_the_gpu_where_there_is_one(sound: str, paths: Paths) -> None:
    card = CudaDevice(name="Card", free_bytes=20 * GIB, total_bytes=24 * GIB)
    report = diagnose(ModelSettings(model=sound), None, machine(cuda=card), paths)
    assert "20.00 GiB of 24.00 GiB free" in fact(report, "Device", "cuda")
    assert "fits into 20.00 GiB" in fact(report, "Memory plan for the GPU", "total")


def test_seven_billion_at_32k_is_planned_without_having_it(paths: Paths) -> None:
    wanted = ModelSettings(model="Qwen/Qwen2.5-Coder-7B-Instruct", context=32_768)
    report = diagnose(wanted, 24 * GIB, machine(), paths)
    assert report.exit_code == 0
    assert "not on this machine" in fact(report, "Model", "files")
    assert "fits into 24.00 GiB" in fact(report, "Memory plan for a card", "total")
    assert "32,768" in fact(report, "Memory plan", "longest")


def test_too_little_memory_is_exit_4_with_a_context_that_fits(paths: Paths) -> None:
    wanted = ModelSettings(model="qwen2.5-coder-7b", context=32_768)
    report = diagnose(wanted, 8 * GIB, machine(), paths)
    assert report.exit_code == 4
    assert report.problems[0].code == "memory_short"
    assert "--context" in report.problems[0].hint


@pytest.mark.parametrize(
    ("spec", "code", "part"),
    [
        ("./nowhere", "model_missing", "nowhere"),
        ("nowhere.gguf", "model_missing", "nowhere.gguf"),
        ("qwen9", "model_unknown", "qwen9"),
        ("someone/some-model", "model_absent", "someone/some-model"),
        ("~nobody-of-this-name/m", "model_missing", "~nobody-of-this-name"),
    ],
)
def test_a_model_that_is_not_there_is_exit_3(spec: str, code: str, part: str, paths: Paths) -> None:
    report = diagnose(ModelSettings(model=spec), None, machine(), paths)
    assert (report.problems[0].code, report.exit_code) == (code, 3)
    assert part in report.problems[0].message
    assert report.problems[0].hint


def test_a_damaged_model_is_exit_3_and_its_sentence_is_shown(sound: str, paths: Paths) -> None:
    (Path(sound) / "model.safetensors").write_bytes(made.POINTER)
    report = diagnose(ModelSettings(model=sound), None, machine(), paths)
    assert report.exit_code == 3
    text = " ".join(" ".join(render(report)).split())
    assert "git-LFS pointer of a file of 987,654,321 bytes" in text
    assert "git lfs pull" in text


def test_warnings_of_the_preflight_are_notes_not_problems(sound: str, paths: Paths) -> None:
    (Path(sound) / "tokenizer_config.json").unlink()
    report = diagnose(ModelSettings(model=sound), None, machine(), paths)
    assert report.exit_code == 0
    assert "no chat template" in fact(report, "Model", "note")


def test_a_context_beyond_the_models_own_is_a_usage_problem(sound: str, paths: Paths) -> None:
    report = diagnose(ModelSettings(model=sound, context=1024), None, machine(), paths)
    assert (report.problems[0].code, report.exit_code) == ("bad_setting", 2)
    assert "--context 512" in report.problems[0].hint


def test_packages_that_would_not_do_are_named(sound: str, paths: Paths) -> None:
    old = machine(packages={"bitsandbytes": "0.49.1", "torch": None})
    report = diagnose(ModelSettings(model=sound), None, old, paths)
    assert [problem.code for problem in report.problems] == ["package_missing", "package_old"]
    assert "0.49.1" in report.problems[1].message
    assert report.exit_code == 1


def test_asking_for_cuda_where_there_is_none(sound: str, paths: Paths) -> None:
    wanted = ModelSettings(model=sound, device="cuda")
    assert diagnose(wanted, None, machine(), paths).problems[0].code == "no_cuda"
    assert diagnose(wanted, 8 * GIB, machine(), paths).exit_code == 0


def test_the_gravest_problem_gives_the_exit_code(tmp_path: Path, paths: Paths) -> None:
    old = machine(packages={"bitsandbytes": "0.40.0"})
    report = diagnose(ModelSettings(model=str(tmp_path / "none")), None, old, paths)
    assert [problem.exit_code for problem in report.problems] == [1, 3]
    assert report.exit_code == 3


def test_every_model_of_the_catalogue_can_be_planned_before_it_is_fetched(paths: Paths) -> None:
    for name, entry in CATALOGUE.items():
        assert preset_of(name) is not None
        report = diagnose(ModelSettings(model=name), None, machine(), paths)
        assert report.exit_code == 0, entry.title


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("24GiB", 24 << 30),
        ("24G", 24 << 30),
        ("24 GB", 24 * 10**9),
        ("8192MiB", 8 << 30),
        ("1.5gib", 3 << 29),
        ("500 MB", 500 * 10**6),
        ("4096", 4096),
        ("4096B", 4096),
    ],
)
def test_amounts(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "lots", "-3GiB", "0GiB", "12XB", "3iB", "GiB"])
def test_what_is_no_amount_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_bytes(text)
    assert repr(text) in caught.value.message
    assert caught.value.exit_code == 2


def test_every_symptom_has_a_suspect_and_a_remedy() -> None:
    lines = render_symptoms()
    assert len(SYMPTOMS) >= 8
    assert all(row.suspect and row.remedy for row in SYMPTOMS)
    assert sum(line.startswith("  remedy") for line in lines) == len(SYMPTOMS)
    assert max(map(len, lines)) <= 98


def test_this_machine_answers() -> None:
    found = this_machine()
    assert found.physical_cores >= 1
    assert found.cpu
    assert found.packages["torch"]
    assert found.available_bytes > 0


def test_cache_sizes_and_places(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "x").write_bytes(b"12345")
    (tmp_path / "a" / "b" / "y").write_bytes(b"123")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "x")
    assert folder_bytes(tmp_path / "a") == 8
    assert folder_bytes(tmp_path / "nothing") == 0
    assert hub_cache({"HF_HOME": "/h"}) == Path("/h/hub")
    assert hub_cache({"HF_HOME": "/h", "HF_HUB_CACHE": "/c"}) == Path("/c")
    assert hub_cache({"XDG_CACHE_HOME": "/x"}) == Path("/x/huggingface/hub")


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer(cls=SentenceGroup)
    app.command("doctor")(doctor_command)
    app.command("other")(lambda: None)
    return app


def test_the_command_prints_and_exits_with_the_code(sound: str, command: typer.Typer) -> None:
    good = CliRunner().invoke(command, ["doctor", "--model", sound, "--memory", "2GiB"])
    assert good.exit_code == 0, good.output
    assert "Memory plan for a card" in good.stdout
    (Path(sound) / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    bad = CliRunner().invoke(command, ["doctor", "--model", sound])
    assert bad.exit_code == 3
    assert "mamba" in bad.stdout
    small = ["doctor", "--model", "qwen2.5-coder-7b", "--memory", "2GiB"]
    assert CliRunner().invoke(command, small).exit_code == 4
    wrong = CliRunner().invoke(command, ["doctor", "--memory", "much"])
    assert wrong.exit_code == 2
    assert "'much'" in wrong.stderr
    assert "suspect" in CliRunner().invoke(command, ["doctor", "--symptoms"]).stdout


def test_without_a_gpu_nothing_heavy_is_imported(sound: str) -> None:
    code = (
        "import sys\nfrom app.doctor_cli import *\n"
        "from app.settings import ModelSettings\n"
        f"diagnose(ModelSettings(model={sound!r}), None, this_machine(), user_paths())\n"
        "heavy = {'transformers', 'bitsandbytes', 'huggingface_hub'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"
