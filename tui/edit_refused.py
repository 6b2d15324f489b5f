"""The one error of editing: an edit that could not be made exactly is not made.

Owns the class and its codes' prefix, so that the parts of editing need not import each other.
"""

from __future__ import annotations

from typing import ClassVar

from engine.protocol import EngineError


class EditRefused(EngineError):  # noqa: N818 - a refusal is an answer, not a fault of the program
    """Why a block was not applied or an edit not undone; nothing was written."""

    exit_code: ClassVar[int] = 2

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(f"edit_{code}", message, hint)
