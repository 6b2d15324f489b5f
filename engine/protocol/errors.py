"""Errors a user can cause, as one tree; each has a stable `code`, an exit code and a remedy.

EngineError
├── RequestError     the request itself can't be served (exit 2)
├── ModelError       the model's files can't be used (exit 3)
└── MemoryLimitError the model or the context does not fit (exit 4)
"""

from __future__ import annotations

from typing import ClassVar

from engine.protocol.events import Failed


class EngineError(Exception):
    """Something a user can put right: what happened, with the value, and what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(f"{message}. {hint}" if hint else message)
        self.code = code
        self.message = message
        self.hint = hint

    def as_event(self) -> Failed:
        """The same error as the last event of a stream."""
        return Failed(
            code=self.code, message=self.message, hint=self.hint, exit_code=self.exit_code
        )


class RequestError(EngineError):
    """The request can't be served as it stands."""

    exit_code = 2


class ModelError(EngineError):
    """The model's files are missing, damaged or of a kind this engine can't run."""

    exit_code = 3


class MemoryLimitError(EngineError):
    """The weights, the cache or both do not fit."""

    exit_code = 4
