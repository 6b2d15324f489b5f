"""Whether the client's own process is still there.

A client that is killed closes the server's input, unless another of its children holds it open. A
server on another machine or in a container can't see the client at all, so a process counts as gone
only if it was seen before.
"""

from __future__ import annotations

import os


def is_alive(process_id: int) -> bool:
    """Whether a process is there; on Windows, where asking in this way would end it, always."""
    if os.name != "posix":
        return True
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
