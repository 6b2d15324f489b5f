"""A calibration on a terminal: every path has its row, every timed one its letter."""

from __future__ import annotations

from msgspec.structs import replace

from app.calibrate_report import HEIGHT, WIDTH, evidence_in_words, lines_of, plot
from engine.calibration.figures import Path, Report, Timed
from engine.costs import BucketCosts
from engine.draft.copy import RATES


def path(name: str, alpha: float, c: float) -> Path:
    costs = BucketCosts(
        unit_ms=20.0,
        passes=[1.0, *[1.05] * 32],
        drafts={"layer_skip": [c * k for k in range(1, 33)]},
    )
    return Path(
        name=name,
        route="layer_skip",
        layers=3,
        exit_layer=3,
        is_there=True,
        agreement={0.0: (alpha,) * 4, 0.7: (alpha - 0.1,) * 4, 1.0: (alpha - 0.2,) * 4},
        costs={0: costs, 3: costs},
    )


def report(*timed: Timed, paths: tuple[Path, ...] = ()) -> Report:
    return Report(
        requests=7,
        asked=9,
        tokens=1234,
        judged=345,
        layers=24,
        head_share=0.1,
        paths=paths or (path("first 3", 0.8, 0.2), path("first 5", 0.5, 0.3)),
        timed=timed,
        copying={2: (0.5, 0.75, 0.8)},
    )


def timed(name: str, times_plain: float, rounds: int = 40) -> Timed:
    return Timed(
        name=name, k=2, rounds=rounds, tokens_per_round=1.9, times_plain=times_plain, c=0.2
    )


def test_every_path_has_a_row_with_its_figures_at_each_context() -> None:
    lines = list(lines_of(report()))
    assert lines[0] == "7 of 9 requests answered, 1,234 tokens; judged on 345 of them"
    agreement, costs = [line.split() for line in lines if line.startswith("first 3")]
    assert agreement == ["first", "3", "3", *["0.80"] * 4, "0.70", "0.60"]
    arm = report().paths[0].arm(0)
    assert costs == ["first", "3", *["0.20", str(arm.k), f"{arm.gain:.2f}"] * 2]
    assert any("short contexts" in line and "from 1,024" in line for line in lines)
    assert "first 3" in lines[-1], "the verdict comes last"


def test_a_position_that_no_draft_got_to_has_no_share() -> None:
    short = replace(path("first 3", 0.2, 0.2), agreement=dict.fromkeys((0.0, 0.7, 1.0), (0.2, 0.1)))
    (row, *_) = [line for line in lines_of(report(paths=(short,))) if line.startswith("first 3")]
    assert row.split()[3:7] == ["0.20", "0.10", "–", "–"]


def test_copying_is_told_by_what_it_goes_by() -> None:
    lines = list(lines_of(report()))
    (row,) = [line for line in lines if "0.50  0.75  0.80" in line]
    assert row.strip().startswith("the last 3 tokens said before")
    words = [evidence_in_words(evidence) for evidence in range(len(RATES))]
    assert len(set(words)) == len(RATES)
    assert words[0] == "the last token said before"
    assert words[3] == "the last 4–5 tokens said before"
    assert words[6] == "the last 20 or more tokens said before"


def test_no_line_is_wider_than_a_narrow_terminal() -> None:
    long = path("head, first 2, from 126", 0.3, 0.9)
    told = report(timed(long.name, 0.4), paths=(long, path("first 3", 0.2, 0.4)))
    told = replace(told, left_out=("contexts from 1,024 and 4,096 tokens: no time",) * 3)
    lines = list(lines_of(told))
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_what_was_left_out_and_a_time_overrun_are_told() -> None:
    told = replace(report(), left_out=("jumps: there was no time",), budget_s=30.0, seconds=36.0)
    *_, left, late = lines_of(told)
    assert left == "left out: jumps: there was no time. More --minutes does it."
    text = " ".join(lines_of(told))
    assert "It took 36 s of the 30 s asked for" in text
    assert late
    assert "It took" not in " ".join(lines_of(replace(told, seconds=32.0)))


def test_the_picture_has_a_letter_for_each_timed_path() -> None:
    lines = list(plot(report(timed("first 3", 1.4), timed("first 5", 0.9))))
    grid = [line[7:] for line in lines if "│" in line]
    assert len(grid) == HEIGHT
    assert all(len(line) <= WIDTH for line in grid)
    drawn = "".join(grid)
    assert (drawn.count("a"), drawn.count("b")) == (1, 1)
    better = next(at for at, line in enumerate(grid) if "a" in line)
    worse = next(at for at, line in enumerate(grid) if "b" in line)
    assert better < worse
    (legend,) = [line.split() for line in lines if line.startswith("  a")]
    arm = report().paths[0].arm_at(0, 2)
    assert legend == [
        "a", "first", "3", "2", f"{arm.gain:.2f}", "1.40", f"{arm.tokens:.2f}", "1.90", "40"
    ]  # fmt: skip


def test_what_was_not_timed_is_not_drawn() -> None:
    for nothing in (report(), report(timed("first 3", 0.0, rounds=0))):
        (line,) = plot(nothing)
        assert "nothing was decoded for real" in line


def test_two_paths_on_one_spot_are_both_seen() -> None:
    same = report(timed("first 3", 1.4), timed("first 3", 1.4))
    drawn = "".join(line[7:] for line in plot(same) if "│" in line)
    assert (drawn.count("a"), drawn.count("b")) == (1, 1)


def test_a_path_far_off_the_prediction_stays_inside_the_picture() -> None:
    lines = list(plot(report(timed("first 3", 9.0), timed("first 5", 0.01))))
    assert sum("│" in line for line in lines) == HEIGHT
