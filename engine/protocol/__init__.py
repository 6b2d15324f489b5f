"""The seam: what a client may ask of the engine and what it hears back.

Every type that crosses a process or a thread lives in this package, as a frozen msgspec struct, so
that the same definition serves the in-process engine, the socket and the tests. It imports neither
torch nor anything of `app`, `lsp` or `tui`; clients import nothing else of the engine.

Invariant: a stream is any number of `Queued`, then `Started`, then any number of
`Paused`/`Resumed`/`TextDelta`/`RoundDone`, then exactly one `Finished` or `Failed`; a request that
is refused has no `Started`.
"""

from engine.protocol.engines import (
    Engine,
    SharedEngine,
)
from engine.protocol.errors import (
    EngineError,
    MemoryLimitError,
    ModelError,
    RequestError,
)
from engine.protocol.events import (
    Event,
    Failed,
    Finished,
    Paused,
    Queued,
    Resumed,
    RoundDone,
    Started,
    TextDelta,
    Usage,
)
from engine.protocol.requests import (
    ChatPrompt,
    FillPrompt,
    GenerateRequest,
    PromptCost,
    SamplingParams,
    Snippet,
    Steering,
    Turn,
)
from engine.protocol.status import (
    EngineStatus,
    Held,
    LoadProgress,
    ModelInfo,
)
from engine.protocol.words import (
    PROTOCOL_VERSION,
    EngineState,
    FinishReason,
    Mode,
    Priority,
    Role,
    Route,
    RouteChoice,
    TokenKind,
)

__all__ = [
    "PROTOCOL_VERSION",
    "ChatPrompt",
    "Engine",
    "EngineError",
    "EngineState",
    "EngineStatus",
    "Event",
    "Failed",
    "FillPrompt",
    "FinishReason",
    "Finished",
    "GenerateRequest",
    "Held",
    "LoadProgress",
    "MemoryLimitError",
    "Mode",
    "ModelError",
    "ModelInfo",
    "Paused",
    "Priority",
    "PromptCost",
    "Queued",
    "RequestError",
    "Resumed",
    "Role",
    "RoundDone",
    "Route",
    "RouteChoice",
    "SamplingParams",
    "SharedEngine",
    "Snippet",
    "Started",
    "Steering",
    "TextDelta",
    "TokenKind",
    "Turn",
    "Usage",
]
