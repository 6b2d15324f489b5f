"""The size budgets of the house: a module, a function or a signature too large to read is a bug."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "engine", "lsp", "tui")
MODULES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 6

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(source: str) -> list[Function]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, Function)]


def code_lines(function: Function) -> int:
    """Lines from `def` to the end, less the docstring: explaining more must never cost budget."""
    body = function.body[0]
    is_docstring = isinstance(body, ast.Expr) and isinstance(body.value, ast.Constant)
    docstring = (body.end_lineno or 0) - body.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def parameters(function: Function) -> list[str]:
    """Names of the parameters, `self` and `cls` left out."""
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def broken_budgets(source: str) -> list[str]:
    """What is too large in one module, as sentences."""
    broken = []
    if (lines := len(source.splitlines())) > MAX_MODULE_LINES:
        broken.append(f"{lines} lines, at most {MAX_MODULE_LINES}")
    for function in functions_of(source):
        if (lines := code_lines(function)) > MAX_FUNCTION_LINES:
            broken.append(f"{function.name} has {lines} lines, at most {MAX_FUNCTION_LINES}")
        if (count := len(parameters(function))) > MAX_PARAMETERS:
            broken.append(f"{function.name} has {count} parameters, at most {MAX_PARAMETERS}")
    if ast.get_docstring(ast.parse(source)) is None:
        broken.append("no module docstring")
    return broken


@pytest.mark.parametrize("module", MODULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_keeps_its_budgets(module: Path) -> None:
    assert broken_budgets(module.read_text(encoding="utf-8")) == []


def test_every_package_was_found() -> None:
    assert {module.relative_to(ROOT).parts[0] for module in MODULES} == set(PACKAGES)


def test_what_is_too_large_is_found() -> None:
    body = "\n".join(f"    x{i} = {i}" for i in range(MAX_FUNCTION_LINES))
    source = f"def long(self, a, b, c, d, e, f, *, g):\n{body}\n" + "\n" * MAX_MODULE_LINES
    assert broken_budgets(source) == [
        f"{MAX_MODULE_LINES + MAX_FUNCTION_LINES + 1} lines, at most {MAX_MODULE_LINES}",
        f"long has {MAX_FUNCTION_LINES + 1} lines, at most {MAX_FUNCTION_LINES}",
        f"long has 7 parameters, at most {MAX_PARAMETERS}",
        "no module docstring",
    ]


def test_a_docstring_costs_no_budget() -> None:
    lines = "\n".join("    word" for _ in range(MAX_FUNCTION_LINES))
    assert broken_budgets(f'"""m"""\ndef f():\n    """\n{lines}\n    """\n    return 1\n') == []
