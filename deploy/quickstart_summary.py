"""Print the closing summary of deploy/quickstart from the training's report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def lines(report: dict[str, Any]) -> list[str]:
    agrees = report["largest_difference"] < report["tolerance"]
    counters = report["counters"]
    return [
        f"ranks                 {report['ranks']} on {report['nodes']} nodes",
        f"steps                 {report['steps']} in {report['epochs']} epochs",
        f"accuracy              {report['accuracy']:.1%} on held-out images",
        f"largest difference    {report['largest_difference']:.2e} of any parameter from training in one"
        f" process ({'below' if agrees else 'NOT BELOW'} {report['tolerance']:.0e})",
        f"speed                 {report['images_per_second']:,.0f} images/s",
        f"communication         {report['communication_share']:.1%} of the time was spent waiting for it",
        f"tensors               {int(counters['tensors']):,} completed on the first node",
        f"buckets               {int(counters['operations']):,} moved, of which"
        f" {int(counters['learned_operations']):,} without any negotiation",
        f"reduced               {human_bytes(float(counters['bytes_reduced']))}"
        f" ({human_bytes(float(counters['bytes_sent']))} sent over the network path)",
    ]


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: quickstart_summary.py REPORT.json", file=sys.stderr)
        return 2
    report = json.loads(Path(sys.argv[1]).read_text())
    print("\n== ringctl comms, taken while it ran ==")
    print(report["communicators"].rstrip())
    print("\n== Summary ==")
    print("\n".join(lines(report)))
    if report["largest_difference"] >= report["tolerance"]:
        print("\nFAILED: distributed and single-process training disagree", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
