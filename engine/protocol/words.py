"""The words of the seam that more than one of its structs uses, and its version."""

from __future__ import annotations

from typing import Literal

PROTOCOL_VERSION = 1
"""Raised by one whenever an older client or engine could misread what is sent."""

Route = Literal["plain", "copy", "layer_skip", "exit_head", "low_precision"]
RouteChoice = Literal["auto", "plain", "copy", "layer_skip", "exit_head", "low_precision"]
Priority = Literal["chat", "fill", "idle"]
"""A fill goes before a chat; an idle one is a fill that nobody waits for, and goes after both."""
TokenKind = Literal["accepted", "recovered", "bonus", "plain"]
Mode = Literal["speculating", "plain"]
FinishReason = Literal["stop", "stop_string", "length", "context", "cancelled"]
Role = Literal["system", "user", "assistant"]
EngineState = Literal["asleep", "loading", "ready", "failed"]
