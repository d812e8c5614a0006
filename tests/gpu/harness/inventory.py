"""Checks that ringd tells what GPUs, driver and NCCL there are."""

from __future__ import annotations

import json
from typing import Any

from tests.gpu.harness.check import Findings
from tests.gpu.harness.libraries import nccl_text
from tests.gpu.harness.site import Site

# A probe may take 30 s for each library.
ANSWER_S = 75.0


def check_gpus(site: Site) -> Findings:
    """What `ringctl gpus` says is what this process found by itself."""
    with site.nodes(1, gpus=len(site.libraries.gpus)) as nodes:
        said = nodes.cluster.ringctl("gpus", "--json", timeout_s=ANSWER_S)
        assert said.returncode == 0, f"ringctl gpus ended with {said.returncode}\n{said.stdout}{said.stderr}"
        reply = json.loads(said.stdout)
    problems = [reply[name]["problem"] for name in ("cuda", "nccl") if reply[name]["problem"]]
    assert not problems, f"{problems[0]}\n{said.stdout}"
    expected = [(gpu["name"], gpu["compute_capability"]) for gpu in site.libraries.gpus]
    found = [(gpu["name"], gpu["compute_capability"]) for gpu in reply["gpus"]]
    assert found == expected, f"found {found}, expected {expected}\n{said.stdout}"
    version = nccl_text(site.libraries.nccl_version)
    assert reply["nccl"]["version"] == version, f"NCCL is {version}\n{said.stdout}"
    return Findings([describe(gpu) for gpu in reply["gpus"]])


def describe(gpu: dict[str, Any]) -> str:
    operations = "has" if gpu["stream_memory_operations"] else "has no"
    return f"{gpu['uuid']}: MPS {gpu['mps'] or 'not told'}, {operations} stream memory operations"
