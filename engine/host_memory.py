"""What this machine, its container and its limits leave to this process: bytes, and cores.

Plain questions to the operating system, each asked anew. Knows no model and no torch.
"""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


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


def physical_cores(cgroup: Path = CGROUP) -> int:
    """Cores this process may use; two hardware threads of one core share the unit that counts, and
    of a share of a core that its container grants nothing is left for a thread of its own."""
    import psutil

    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    granted = _granted_cores(cgroup)
    return max(1, min(cores, allowed, cores if granted is None else int(granted)))


def _granted_cores(cgroup: Path) -> float | None:
    """Processor time ÷ wall time that the container may take; None where it is not limited."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):  # cgroup v1
        files = (cgroup / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
        try:
            quota, period = (file.read_text() for file in files)
        except OSError:
            return None
    try:
        granted = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return granted if granted > 0 else None  # the old way to say "max" is -1


def _container_bytes() -> int | None:
    limit, used = (_cgroup_number(name) for name in ("memory.max", "memory.current"))
    return None if limit is None or used is None else limit - used


def _cgroup_number(name: str) -> int | None:
    try:
        return int((CGROUP / name).read_text())
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
