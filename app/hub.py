"""The model hub as this application uses it: what a repository holds, and one file of it, resumed.

huggingface_hub supplies the addresses, the credentials, the HTTP session (proxies, certificates,
`HF_ENDPOINT`, `HF_HUB_OFFLINE`) and the look into its cache. The byte loop is ours, because its own
downloads start over after an interruption. This module knows nothing of the catalogue.

Invariant: a hub that does not answer costs at most `answer_seconds`, whatever hangs (the name
lookup, the connection, the answer), and every failure comes out as a `SourceError`.
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

ANSWER_SECONDS = 3.0
"""How long a source may take to give its first answer."""
STALL_SECONDS = 15.0
"""How long a running transfer may stand still before it is taken up anew."""
TRIES = 5
"""Attempts in a row that bring no byte before the transfer is given up."""
RETRY_SECONDS = 1.0
CHUNK_BYTES = 1 << 20

T = TypeVar("T")
Received = Callable[[int], None]


class SourceError(Exception):
    """One source could not deliver; the text is the reason, without a full stop."""


class HubAccess(Struct, frozen=True, kw_only=True):
    """Which hub, and whether it may be asked at all."""

    endpoint: str
    offline: bool
    cache: Path
    """The cache that huggingface_hub shares between applications; only read here."""
    answer_seconds: float = ANSWER_SECONDS


class HubEntry(Struct, frozen=True, kw_only=True):
    """One file of a repository."""

    filename: str
    size_bytes: int | None
    sha256: str | None


class HubRepo(Struct, frozen=True, kw_only=True):
    """A repository at one commit."""

    repo: str
    commit: str
    licence: str
    files: tuple[HubEntry, ...]


def hub_access() -> HubAccess:
    """The hub as the user's environment configures it, read by huggingface_hub itself."""
    from huggingface_hub import constants, is_offline_mode

    return HubAccess(
        endpoint=constants.ENDPOINT,
        offline=is_offline_mode(),
        cache=Path(constants.HF_HUB_CACHE),
    )


def cached_file(access: HubAccess, repo: str, revision: str, filename: str) -> Path | None:
    """The file in huggingface_hub's cache, if another application already fetched it."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, filename, cache_dir=access.cache, revision=revision)
    return Path(found).resolve() if isinstance(found, str) else None


def cached_snapshot(access: HubAccess, repo: str, patterns: tuple[str, ...]) -> Path | None:
    """The folder of `repo` in huggingface_hub's cache; it may be incomplete."""
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                repo,
                cache_dir=access.cache,
                allow_patterns=list(patterns),
                local_files_only=True,
            )
        )
    except OSError:
        # Not there, or known to be incomplete: both mean that it has to be fetched.
        return None


def describe_repo(access: HubAccess, repo: str) -> HubRepo:
    """What the default branch of `repo` holds now. Raises `SourceError`."""
    from huggingface_hub import HfApi

    info = _answer(
        access,
        lambda: HfApi(endpoint=access.endpoint).model_info(
            repo, timeout=access.answer_seconds, files_metadata=True
        ),
    )
    files = tuple(
        HubEntry(
            filename=file.rfilename,
            size_bytes=file.size,
            sha256=None if file.lfs is None else file.lfs["sha256"],
        )
        for file in info.siblings or ()
    )
    card = info.card_data
    licence = str(card.get("license") or "unknown") if card is not None else "unknown"
    return HubRepo(repo=repo, commit=str(info.sha), licence=licence, files=files)


def fetch_file(
    access: HubAccess, name: tuple[str, str, str], target: Path, received: Received
) -> None:
    """Bring the file `(repo, revision, filename)` to `target`, going on from what is there.

    `received` is called with the total number of bytes at hand. Raises `SourceError`; what was
    fetched by then stays in `target` and counts at the next call.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    repo, revision, filename = name
    url = hf_hub_url(repo, filename, revision=revision, endpoint=access.endpoint)
    found = _answer(
        access,
        lambda: get_hf_file_metadata(url, timeout=access.answer_seconds, endpoint=access.endpoint),
    )
    headers = dict(build_hf_headers())
    if urlsplit(found.location).netloc != urlsplit(url).netloc:
        # A signed address on another host: the user's token is none of its business.
        headers.pop("authorization", None)
    headers["Accept-Encoding"] = "identity"
    idle = 0
    while found.size is None or not target.exists() or target.stat().st_size < found.size:
        before = _size(target)
        try:
            _transfer(access, found.location, headers, target, received)
        except SourceError:
            idle = 0 if _size(target) > before else idle + 1
            if idle >= TRIES or before == 0 == _size(target):
                raise
            time.sleep(RETRY_SECONDS)
        else:
            break
    if found.size is not None and _size(target) != found.size:
        size = _size(target)
        target.unlink(missing_ok=True)
        raise SourceError(f"it sent {size:,} bytes where {found.size:,} were announced")


def link_or_copy(origin: Path, target: Path) -> None:
    """Put the content of `origin` at `target` without using disk space twice where that works."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(origin)
    except OSError:
        shutil.copyfile(origin, target)


def within(seconds: float, act: Callable[[], T]) -> T:
    """The result of `act`, or `TimeoutError` after `seconds`.

    A name lookup can't be interrupted, so `act` runs in a thread that is left behind when it is
    late. Raises what `act` raises.
    """
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((act(), None))
        except BaseException as error:  # handed to the caller's thread, which raises it
            done.put((None, error))

    threading.Thread(target=run, name="hub-answer", daemon=True).start()
    try:
        value, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def _transfer(
    access: HubAccess, url: str, headers: dict[str, str], target: Path, received: Received
) -> None:
    from huggingface_hub import get_session

    session = get_session()
    start = _size(target)
    asked = {**headers, "Range": f"bytes={start}-"} if start else headers
    request = session.build_request("GET", url, headers=asked, timeout=STALL_SECONDS)
    response = _answer(access, lambda: session.send(request, stream=True, follow_redirects=True))
    try:
        if response.status_code == 416:
            target.unlink(missing_ok=True)
            raise SourceError("it refused to go on from the part at hand")
        if response.status_code not in (200, 206):
            raise SourceError(f"it answered with HTTP status {response.status_code}")
        if response.status_code == 200:
            start = 0  # the server ignored the range and sends everything
        with target.open("ab" if start else "wb") as file:
            for chunk in _chunks(response):
                file.write(chunk)
                start += len(chunk)
                received(start)
    finally:
        response.close()


def _chunks(response: Any) -> Iterator[bytes]:
    """The body piece by piece; only what the network does becomes `SourceError`, so that a full
    disk in the loop around it keeps its own name."""
    body = iter(response.iter_bytes(CHUNK_BYTES))
    while True:
        try:
            chunk = next(body)
        except StopIteration:
            return
        except Exception as error:
            raise SourceError(f"the transfer broke off ({_first_line(error)})") from error
        yield chunk


def _answer(access: HubAccess, ask: Callable[[], T]) -> T:
    """What the hub says to `ask`. The library's HTTP layer changed hands between its versions, so
    there is no exception type to name: whatever it raises is the reason why this source failed."""
    host = urlsplit(access.endpoint).netloc or access.endpoint
    if access.offline:
        raise SourceError("the environment asks for offline work (HF_HUB_OFFLINE)")
    try:
        return within(access.answer_seconds, ask)
    except TimeoutError as error:
        raise SourceError(f"{host} gave {error}") from error
    except Exception as error:
        raise SourceError(f"{host}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "the publisher wants you to accept its terms on the web page and to log in"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such repository, or it is private and you are not logged in"
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return f"it answered with HTTP status {error.response.status_code}"
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
