"""The editors that the tests drive, installed into the user's cache where they are absent.

Each is made by a script beside this file and kept under the hash of what it is made from, so that a
changed script makes a new one. An installation appears as a whole or not at all; what a script
needs of the machine, and what it said when it failed, are told in a sentence.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from filelock import FileLock

from app.paths import user_paths

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
EXTENSION = ROOT / "lsp" / "clients" / "vscode"
CHROMIUM = "/usr/bin/chromium"
INSTALL_S = 600


def neovim() -> Path:
    """The program `nvim`."""
    _need("debootstrap", "debootstrap")
    script = HERE / "install_neovim.sh"
    return _made("neovim", [script], lambda folder: _run([str(script), str(folder)])) / "nvim"


def vscode() -> Path:
    """A folder with `node/bin` and `node_modules`, code-server and playwright-core among them."""
    _need(CHROMIUM, "chromium fonts-dejavu-core")
    script = HERE / "install_vscode.sh"
    return _made("vscode", [script], lambda folder: _run([str(script), str(folder)]))


def vsix(installed: Path) -> Path:
    """The packaged extension, made from this checkout with the Node of `installed`."""

    def make(folder: Path) -> None:
        made = shutil.ignore_patterns("node_modules", "dist")
        shutil.copytree(EXTENSION, folder, ignore=made, dirs_exist_ok=True)
        environment = with_node(installed)
        _run(["npm", "ci", "--silent"], folder, environment)
        _run(["npm", "test"], folder, environment)
        _run(["npm", "run", "package"], folder, environment)
        shutil.rmtree(folder / "node_modules")

    return _made("extension", _sources(EXTENSION), make) / "dist" / "sspec-assist.vsix"


def with_node(installed: Path) -> dict[str, str]:
    """This process's environment, with the Node of `installed` before all others."""
    return os.environ | {"PATH": f"{installed / 'node' / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def _sources(folder: Path) -> list[Path]:
    inside = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return [
        folder / file for file in sorted(inside) if not {"node_modules", "dist"} & {*file.parts}
    ]


def _made(name: str, sources: Iterable[Path], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    place = user_paths().cache_dir() / "editors" / f"{name}-{digest.hexdigest()[:12]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.with_suffix(".lock")):
        if not place.is_dir():
            partial = place.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            for old in place.parent.glob(f"{name}-*/"):
                if old != partial:
                    shutil.rmtree(old)
            partial.rename(place)
    return place


def _run(
    command: list[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=(environment or os.environ) | {"PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode:
        said = "\n".join(done.stdout.strip().splitlines()[-15:])
        pytest.fail(f"{' '.join(command)} failed; is the network there? It said:\n{said}")


def _need(program: str, packages: str) -> None:
    if shutil.which(program) is None:
        pytest.fail(f"{program} is needed for this test: apt-get install {packages}")
