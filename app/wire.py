"""What goes over the socket between a client and the daemon: names, frames, and errors in transit.

Both sides use this module and nothing else of each other. Events and statuses travel as server-sent
events, one JSON text a frame; a refusal is a `Failed` as JSON with a status of 4xx or 5xx. It knows
no HTTP library.

Invariant: what one side frames, the other takes apart into the same bytes, wherever the transport
cuts them; text is never split at anything but the empty line between frames.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import Struct

from app.settings import DaemonSettings, ModelSettings
from engine.config import DraftSettings
from engine.protocol import (
    PROTOCOL_VERSION,
    ChatPrompt,
    FillPrompt,
    RequestError,
    Steering,
)

VERSION_HEADER = "x-sspec-protocol"
CLIENT_HEADER = "x-sspec-client"
"""Names one client, so that its connections count once."""
SERVES_HEADER = "x-sspec-serves"
"""What the daemon was asked to serve: a `Wanted` as JSON."""

MAX_BODY_BYTES = 32 << 20
"""More than any context could hold."""
STILL_HERE_S = 15.0
"""A stream that has nothing to tell says so this often, so that either side notices a dead one."""
SILENCE_S = 60.0
"""A stream that says nothing at all for so long is dead."""

STILL_HERE = b": still here\n\n"
_DATA = b"data: "
_END = b"\n\n"


class Wanted(Struct, frozen=True, kw_only=True):
    """The model to serve and how."""

    model: ModelSettings = ModelSettings()
    decode: DraftSettings = DraftSettings()


class Startup(Struct, frozen=True, kw_only=True):
    """All that a daemon is started with."""

    wanted: Wanted = Wanted()
    daemon: DaemonSettings = DaemonSettings()


class Steer(Struct, frozen=True, kw_only=True):
    """Body of `/v1/steer`."""

    request_id: str
    steering: Steering


class Measure(Struct, frozen=True, kw_only=True):
    """Body of `/v1/measure`."""

    prompt: ChatPrompt | FillPrompt


def frame(told: object) -> bytes:
    """One struct as one frame. JSON has no raw line ends, so it needs no further care."""
    return _DATA + msgspec.json.encode(told) + _END


class Frames:
    """Takes a stream of bytes apart into the data of its frames; comments are left out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each frame that `chunk` completes."""
        self._rest += chunk
        *whole, rest = bytes(self._rest).split(_END)
        self._rest = bytearray(rest)
        return [one[len(_DATA) :] for one in whole if one.startswith(_DATA)]


def version_refusal(theirs: str | None, *, whose: str) -> RequestError | None:
    """Why a message of protocol version `theirs` can't be taken, or None if it can."""
    if theirs == str(PROTOCOL_VERSION):
        return None
    spoken = f"version {theirs[:20]!r}" if theirs else "no version"
    return RequestError(
        "protocol_version",
        f"the {whose} speaks {spoken} of the protocol, this program version {PROTOCOL_VERSION}",
        "Two versions of sspec-assist meet: run `sspec-assist engine stop`, then try again.",
    )


def in_header(told: Struct) -> bytes:
    """A struct as JSON that a header may carry: everything beyond ASCII escaped."""
    return json.dumps(msgspec.to_builtins(told)).encode()
