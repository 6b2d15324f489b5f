"""Everything that must hold before a commit, in one command: `python -m tests.check`.

Runs each step in turn and stops at the first that fails, with its exit code. `--fast` leaves out
the tests that need a real model.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
BESIDE = Path(PYTHON).parent
"""Where the tools' own commands lie, in the same environment as this Python."""

STEPS: dict[str, list[str]] = {
    "format": [PYTHON, "-m", "ruff", "format", "--check", "."],
    "lint": [PYTHON, "-m", "ruff", "check", "."],
    "types": [PYTHON, "-m", "mypy"],
    "contracts": [str(BESIDE / "lint-imports")],
    "tests": [PYTHON, "-m", "pytest", "-q", "-n", "auto", "-m", "not model"],
    # One after the other: two models at a time would fight for memory and cores.
    "tests with real models": [PYTHON, "-m", "pytest", "-q", "-m", "model"],
}
NO_TESTS_COLLECTED = 5


def main(arguments: list[str]) -> int:
    """Exit code of the first failing step, 0 if all pass."""
    for name, command in STEPS.items():
        if "--fast" in arguments and name == "tests with real models":
            continue
        print(f"— {name}", flush=True)
        began = time.perf_counter()
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code == NO_TESTS_COLLECTED and name == "tests with real models":
            code = 0
        if code:
            print(f"— {name} failed with {code}", flush=True)
            return code
        print(f"— {name} passed in {time.perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
