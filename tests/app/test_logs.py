"""The engine's log: one file that rotates, for this user alone, with what C code writes in it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.logs import MAX_LOG_BYTES, OLDER_LOGS, last_lines

ROOT = Path(__file__).parents[2]
WRITER = """
import logging, os, sys
from pathlib import Path
from app.logs import configure_file
os.umask(0)
configure_file(Path(sys.argv[1]))
os.write(2, b"from C, before\\n")
for n in range(int(sys.argv[2])):
    logging.getLogger("app.x").info("line %d %s", n, "x" * 100)
os.write(1, b"from C, after\\n")
logging.getLogger("torch.x").info("noise")
"""


def write(file: Path, lines: int) -> None:
    subprocess.run(
        [sys.executable, "-c", WRITER, str(file), str(lines)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )


def test_records_and_bare_writes_land_in_one_private_file(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "engine.log"
    write(file, 2)
    text = file.read_text()
    assert [
        part for part in ("from C, before", "line 0", "line 1", "from C, after") if part in text
    ]
    assert "noise" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_it_rotates_and_bare_writes_go_with_it(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    write(file, (OLDER_LOGS + 2) * MAX_LOG_BYTES // 130)
    files = sorted(tmp_path.glob("engine.log*"))
    assert len(files) == OLDER_LOGS + 1
    for one in files:
        assert one.stat().st_size <= MAX_LOG_BYTES + 100
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert file.read_text().endswith("from C, after\n")


@pytest.mark.parametrize(
    ("count", "since", "expected"),
    [(2, 0, ["two", "three"]), (9, 4, ["two", "three"]), (9, 999, ["one", "two", "three"])],
)
def test_the_last_lines(tmp_path: Path, count: int, since: int, expected: list[str]) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"one\ntwo\nthree\n")
    assert last_lines(file, count, since=since) == expected
    assert last_lines(tmp_path / "absent", 3) == []
