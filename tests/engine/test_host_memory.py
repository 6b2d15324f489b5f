"""What a container leaves of the machine's cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.host_memory import physical_cores


def test_without_a_limit_all_cores_are_ours(tmp_path: Path) -> None:
    whole = physical_cores(tmp_path)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert physical_cores(tmp_path) == whole >= 1
    (tmp_path / "cpu.max").write_text("no number\n")
    assert physical_cores(tmp_path) == whole


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000", 1), ("199000", 1), ("50000", 1), ("6400000000", 1 << 30)]
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_bounds_the_threads(version: int, quota: str, cores: int, tmp_path: Path) -> None:
    whole = physical_cores(tmp_path)
    if version == 2:
        (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    else:
        (tmp_path / "cpu").mkdir()
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert physical_cores(tmp_path) == min(whole, cores)


def test_an_old_cgroup_without_a_quota_bounds_nothing(tmp_path: Path) -> None:
    whole = physical_cores(tmp_path)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert physical_cores(tmp_path) == whole
