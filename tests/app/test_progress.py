"""Stages on a terminal and in a log."""

from __future__ import annotations

import io

from app.progress import shown_on, stages_on


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_one_line_per_stage() -> None:
    err = io.StringIO()
    with shown_on(err) as report:
        for done in range(3):
            report("reading", done << 20, 2 << 20)
        report("saving", 0, 1)
        report("saving", 1, 1)
        report("measuring", 0, 0)
    assert err.getvalue() == "reading (2.0 MiB)\nsaving\nmeasuring\n"


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    err = Terminal()
    with shown_on(err) as report:
        report("reading", 1 << 20, 2 << 20)
    assert "reading" in err.getvalue()
    assert "\x1b[2K" in err.getvalue()


def test_work_with_a_time_to_keep_gets_a_line_per_stage_in_a_log() -> None:
    err = io.StringIO()
    with stages_on(err) as stages:
        for count in range(3):
            stages.stage("answering", 0.1 * count, f"{count} tokens")
        stages.result("[a result] that stays")
        stages.stage("timing", 1.7, "")
    assert err.getvalue() == (
        "  0%  answering  0 tokens\n      [a result] that stays\n100%  timing\n"
    )


def test_on_a_terminal_its_results_stay_when_the_bar_goes_away() -> None:
    err = Terminal()
    with stages_on(err) as stages:
        stages.stage("answering [all]", 0.5, "7 tokens")
        stages.result("[a result] that stays")
    assert "answering [all]  7 tokens" in err.getvalue()
    assert "[a result] that stays\n" in err.getvalue()
    assert "\x1b[2K" in err.getvalue()
