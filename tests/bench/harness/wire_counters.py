"""What really crossed the shaped links: the kernel's byte counters of every node's interface."""

from __future__ import annotations

import json

from .site import Site, run


def bytes_sent(site: Site) -> int:
    """Bytes that all nodes together have sent so far."""
    total = 0
    for name in site.names:
        links = json.loads(run("ip", "-n", name, "-s", "-j", "link", "show", site.interface))
        total += int(links[0]["stats64"]["tx"]["bytes"])
    return total
