"""A calibration on a terminal: every path has its row, every timed one its letter."""

from __future__ import annotations

from app.calibrate_report import HEIGHT, WIDTH, lines_of, plot
from engine.calibration.figures import Path, Report, Timed
from engine.costs import BucketCosts


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


def report(*timed: Timed) -> Report:
    return Report(
        requests=7,
        tokens=1234,
        layers=24,
        head_share=0.1,
        paths=(path("first 3", 0.8, 0.2), path("first 5", 0.5, 0.3)),
        timed=timed,
        copying={2: (0.5, 0.75, 0.8)},
    )


def timed(name: str, times_plain: float, rounds: int = 40) -> Timed:
    return Timed(name=name, k=2, rounds=rounds, tokens_per_round=1.9, times_plain=times_plain)


def test_every_path_has_a_row_with_its_figures_at_each_context() -> None:
    lines = list(lines_of(report()))
    assert "7 requests, 1,234 tokens" in lines[0]
    (row,) = [line for line in lines if line.startswith("first 3")]
    arm = report().paths[0].arm(0)
    assert "0.80 0.80 0.80 0.80" in row
    assert row.split()[-3:] == ["0.20", str(arm.k), f"{arm.gain:.2f}"]
    assert any("from 1,024" in line for line in lines)
    assert any("0.50 / 0.75 / 0.80" in line for line in lines)
    assert "first 3" in lines[-1], "the verdict comes last"


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
    assert any("1.40 measured, 1.90 tokens a round over 40 rounds" in line for line in lines)


def test_what_was_not_timed_is_not_drawn() -> None:
    assert list(plot(report())) == []
    assert list(plot(report(timed("first 3", 0.0, rounds=0)))) == []


def test_a_path_far_off_the_prediction_stays_inside_the_picture() -> None:
    lines = list(plot(report(timed("first 3", 9.0), timed("first 5", 0.01))))
    assert sum("│" in line for line in lines) == HEIGHT
