"""A real daemon process around a paced echo, for tests that kill it: `python -m` this module.

The model's name may ask for trouble: `broken/load` fails to load, `slow/load` takes long, and
`exits/early` ends the process before it serves.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from app.daemon import run
from app.load_attempt import Opened
from app.paths import user_paths
from app.wire import Startup, Wanted
from engine.protocol import ModelError
from tests.app.remote_engine import PacedEngine

if TYPE_CHECKING:
    from app.progress import Report

COMMAND = (sys.executable, "-P", "-m", "tests.app.scripted_daemon")


def open_paced(wanted: Wanted, report: Report) -> Opened:
    name = wanted.model.model
    if name == "broken/load":
        raise ModelError("broken", "the file of broken/load is damaged", "Fetch it again.")
    for step in range(200 if name == "slow/load" else 2):
        report("reading", step, 200)
        if name == "slow/load":
            time.sleep(0.05)
    return Opened(engine=PacedEngine(name, pause_s=0.01))


if __name__ == "__main__":
    startup = msgspec.json.decode(sys.argv[1], type=Startup)
    if startup.wanted.model.model == "exits/early":
        sys.stderr.write("this daemon was told to fail\n")
        sys.exit(3)
    os._exit(run(startup, user_paths(), open_paced))
