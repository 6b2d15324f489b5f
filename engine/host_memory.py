"""What this machine, its container and its limits leave to this process: bytes, and cores.

Plain questions to the operating system, each asked anew. Knows no model and no torch.
"""

from __future__ import annotations

import os
from pathlib import Path


def free_bytes() -> int:
    """Memory this process may still take: the machine's, or what its container or its own limit of
    address space leaves of it."""
    import psutil  # type: ignore[import-untyped]  # it ships no types

    limits = (int(psutil.virtual_memory().available), _container_bytes(), _address_bytes())
    return max(0, min(limit for limit in limits if limit is not None))


def resident_bytes() -> int:
    """Memory that this process has in use."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def physical_cores() -> int:
    """Cores this process may use; two hardware threads of one core share the unit that counts."""
    import psutil

    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(cores, allowed))


def _container_bytes() -> int | None:
    limit, used = (_cgroup_number(name) for name in ("memory.max", "memory.current"))
    return None if limit is None or used is None else limit - used


def _cgroup_number(name: str) -> int | None:
    try:
        return int((Path("/sys/fs/cgroup") / name).read_text())
    except (OSError, ValueError):  # no cgroup v2 here, or "max"
        return None


def _address_bytes() -> int | None:
    """What `ulimit -v` leaves; None where it is unlimited, or unknown to the system."""
    import psutil

    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    return limit - int(psutil.Process().memory_info().vms)
