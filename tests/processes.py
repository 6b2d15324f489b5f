"""Starting processes that a test will interrupt."""

from __future__ import annotations

import signal


def interruptible() -> None:
    """As `preexec_fn`: undo an ignored SIGINT, which a runner in a shell's background passes on to
    everything below it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
