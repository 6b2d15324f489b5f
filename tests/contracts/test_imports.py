"""Who may import whom, looked at in real processes and with import-linter's own run."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "bitsandbytes", "tokenizers", "gguf")
CLIENTS = (
    "app.cli",
    "app.client",
    "app.daemon",
    "app.online",
    "app.engine_cli",
    "engine.protocol",
    "engine.project_files",
    "engine.config",
    "lsp",
    "tui",
)
"""What must start without the engine's weight."""
PACKAGES = ("app", "engine", "lsp", "tui")

PROBE = """
import importlib, pkgutil, sys
found = importlib.import_module(sys.argv[1])
for inner in pkgutil.walk_packages(getattr(found, "__path__", []), found.__name__ + "."):
    importlib.import_module(inner.name)
print(*[name for name in sys.argv[2:] if name in sys.modules])
"""


def module_exists(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def probe(module: str, *looked_for: str) -> list[str]:
    """Those of `looked_for` that a fresh process has loaded after importing `module` whole."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, module, *looked_for],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("module", [name for name in CLIENTS if module_exists(name)])
def test_a_client_starts_without_the_engine_s_weight(module: str) -> None:
    assert probe(module, *HEAVY) == []


def test_the_engine_loads_nothing_of_its_clients() -> None:
    assert probe("engine.service", "app", "lsp", "tui") == []


def test_the_probe_sees_what_is_loaded() -> None:
    assert probe("engine.service", "torch", "app") == ["torch"]


def test_the_contracts_of_the_design_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def imports_of(file: Path) -> set[str]:
    """Top-level packages that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def importers_of(package: str) -> set[str]:
    files = [file for top in PACKAGES for file in (ROOT / top).rglob("*.py")]
    return {str(file.relative_to(ROOT)) for file in files if package in imports_of(file)}


def test_only_quant_imports_bitsandbytes() -> None:
    assert importers_of("bitsandbytes") == {"engine/quant.py"}


def test_the_editor_and_the_chat_never_import_torch() -> None:
    assert not {file for file in importers_of("torch") if file.startswith(("lsp", "tui"))}
