"""Whether a host is this machine. Names are not looked up: only `localhost` is one, and addresses
are judged as written."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address without a port, can only mean this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
