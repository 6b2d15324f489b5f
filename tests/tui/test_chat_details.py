"""The details panel of a chat that runs: it shows what was counted in editors, read in a thread."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from engine.protocol import EngineError
from tests.fakes import ScriptedEngine
from tests.tui.chat_harness import chat, on_loop, quiet, running, said, screen_of
from tests.tui.editor_counts import COUNTED
from tui.chat_app import ChatApp
from tui.details import Details
from tui.editor_statistics import EditorStatistics
from tui.settings import ChatSettings, LiveSettings


def shown(details: Details) -> EditorStatistics | None:
    return details._sheet.editor


@on_loop
async def test_the_counts_are_read_when_the_panel_opens(tmp_path: Path) -> None:
    read_in: list[threading.Thread] = []

    def counted() -> EditorStatistics:
        read_in.append(threading.current_thread())
        return COUNTED

    start = replace(chat(ScriptedEngine([]), tmp_path).start_with, editor_statistics=counted)
    async with running(ChatApp(start)) as pilot:
        assert read_in == []
        await pilot.press("f3")
        await quiet(pilot)
        assert shown(screen_of(pilot).details) == COUNTED
        assert read_in[0] is not threading.main_thread()
        await pilot.press("f3")
        await quiet(pilot)
        assert len(read_in) == 1


@on_loop
async def test_a_panel_that_is_open_from_the_start_has_them_too(tmp_path: Path) -> None:
    settings = LiveSettings(chat=ChatSettings(details=True))
    base = chat(ScriptedEngine([]), tmp_path, settings=settings).start_with
    async with running(ChatApp(replace(base, editor_statistics=lambda: COUNTED))) as pilot:
        await quiet(pilot)
        assert shown(screen_of(pilot).details) == COUNTED


@on_loop
async def test_counts_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    def unreadable() -> EditorStatistics:
        raise EngineError("statistics_unreadable", "the counts are gone", "Do without.")

    start = replace(chat(ScriptedEngine([]), tmp_path).start_with, editor_statistics=unreadable)
    async with running(ChatApp(start)) as pilot:
        await pilot.press("f3")
        await quiet(pilot)
        assert any("the counts are gone" in text for _, text in said(pilot))
        assert shown(screen_of(pilot).details) is None
