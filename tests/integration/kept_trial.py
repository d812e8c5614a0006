"""A trial of small all-reduces that ringd has kept, so that a test does not hang on what one would
find here."""

from __future__ import annotations

import json
import time

from tests.integration.cluster import Cluster, Node

#: By bytes: microseconds through one node and by recursive doubling, as over slow lines: 256 B and
#: more win by a tree.
SLOW_LINES = {64: (160, 230), 1024: (400, 600), 4096: (1600, 2000), 16384: (6000, 3000)}
#: Of how many nodes the k-nomial tree is another one than the flat one, and has a node with a
#: child.
NODES = 6
#: That one, and its child.
INNER, LEAF = 4, 5


def start_nodes_of_a_tree(cluster: Cluster, **settings: object) -> list[Node]:
    """Nodes whose ranks take the k-nomial tree for a few kilobytes."""
    names = [f"node{index}" for index in range(NODES)]
    times = [
        {"bytes": size, "flat_us": flat, "doubling_us": doubling}
        for size, (flat, doubling) in SLOW_LINES.items()
    ]
    trial = {"nodes": names, "times": times, "measured_unix_seconds": int(time.time())}
    folder = cluster.folder / "node0.state"
    folder.mkdir(mode=0o700)
    (folder / "plans.json").write_text(json.dumps({"version": 1, "trials": [trial]}))
    return cluster.start_nodes(NODES, ring_order=",".join(names), **settings)
