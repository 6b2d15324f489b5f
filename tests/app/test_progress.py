"""Stages on a terminal and in a log."""

from __future__ import annotations

import io

from app.progress import shown_on


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
