"""Checks that what comes out of collectives is right."""

from __future__ import annotations

import json
import os

from tests.gpu.harness.check import Findings, NotHere
from tests.gpu.harness.libraries import nccl_text
from tests.gpu.harness.site import Nodes, Site, expect_success
from tests.integration.cluster import JobRun
from tests.integration.failures.events import parse_events

JOB_TIMEOUT_S = 90.0


def check_correct(site: Site, launch: str = "auto") -> Findings:
    """Two ranks on one GPU, two nodes. `launch`: device_launch."""
    with site.nodes(2, device_launch=launch) as nodes:
        return Findings(_sums_of(nodes, [1, 1]))


def check_other_user(site: Site) -> Findings:
    """As a service has it: ringd is another user than the trainers, and its engines, which launch,
    are behind the file wall."""
    if os.geteuid() != 0:
        raise NotHere("only root can start ringd as another user")
    # The emulated NCCL's sockets are not for ranks of two walled engines.
    ranks_per_node = [2] if site.emulated else [1, 1]
    with site.nodes(
        len(ranks_per_node),
        gpus=max(ranks_per_node),
        other_user=True,
        device_launch="engine",
        allowed_users="root",
    ) as nodes:
        return Findings(_sums_of(nodes, ranks_per_node))


def check_several_ranks(site: Site) -> Findings:
    """Four ranks on one GPU, each on a node of its own."""
    with site.nodes(4) as nodes:
        return Findings(_sums_of(nodes, [1, 1, 1, 1]))


def check_ranks_of_a_node(site: Site) -> Findings:
    """Nodes with several ranks: each has a GPU, unless NCCL lets them share one."""
    gpus = len(site.libraries.gpus)
    if not site.emulated and gpus < 2 and not site.ranks_can_share_a_gpu:
        raise NotHere(
            f"two ranks of a node need two GPUs (there is {gpus}), or NCCL 2.30 "
            f"(it is {nccl_text(site.libraries.nccl_version)})"
        )
    with site.nodes(2, gpus=2) as nodes:
        return Findings(_sums_of(nodes, [2, 2]))


def check_one_node(site: Site) -> Findings:
    """Ranks that are all on one node: two, or one alone where two can't share the GPU. Emulated:
    both."""
    two = len(site.libraries.gpus) >= 2 or site.ranks_can_share_a_gpu
    facts = []
    # Emulated GPUs are for trying what a real one will do, whichever that is.
    for ranks in (2, 1) if site.emulated else (2 if two else 1,):
        with site.nodes(1, gpus=2) as nodes:
            facts += [f"ranks: {ranks}", *_sums_of(nodes, [ranks])]
    return Findings(facts)


def _sums_of(nodes: Nodes, ranks_per_node: list[int]) -> list[str]:
    """Runs the program of all types; facts about them."""
    job = nodes.start("correct.py", ranks_per_node)
    job.ranks[0].expect_output('"type"', JOB_TIMEOUT_S)
    registered = registered_memory(nodes)
    job.wait(JOB_TIMEOUT_S)
    wrong = [f"{event['tensor']}: {event['got']}" for event in parse_events(job.transcript(), "wrong")]
    assert not wrong, f"{len(wrong)} wrong results, first {wrong[0]}\n{job.transcript()}"
    expect_success(job, JOB_TIMEOUT_S)
    return [*describe(job), *registered]


def registered_memory(nodes: Nodes) -> list[str]:
    """How much device memory of the first node's ranks is registered with NCCL, while their job
    runs. Decides nothing."""
    facts = []
    for communicator in json.loads(nodes.cluster.ringctl("comms", "--json").stdout)["communicators"]:
        for device in communicator["devices"]:
            mib = int(device.get("registered_bytes", 0)) >> 20
            why_not = device.get("why_not_registered", "")
            if mib or why_not:
                facts.append(f"rank {device['rank']}: {mib} MiB registered with NCCL {why_not}".rstrip())
    return facts


def describe(job: JobRun) -> list[str]:
    """What the first rank saw."""
    types = parse_events(job.ranks[0].output, "type")
    verdicts: dict[str, list[str]] = {}
    for event in types:
        verdicts.setdefault(event["verdict"], []).append(event["name"].lower())
    facts = [f"{verdict}: {', '.join(names)}" for verdict, names in verdicts.items()]
    (checked,) = parse_events(job.ranks[0].output, "checked")
    lost = [op.lower() for op, kept in checked["nan_comes_through"].items() if not kept]
    facts.append(f"NaN is lost in {', '.join(lost)}" if lost else "NaN comes through sum, min and max")
    return facts
