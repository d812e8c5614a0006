"""What ringd measures, plans, shows and keeps for the next job."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, JobRun, Node
from tests.integration.processes import binary, python, wait_until

STEADY = (Path(__file__).parent / "programs" / "steady.py").read_text()
UNTIL_TOLD = (Path(__file__).parent / "programs" / "until_told.py").read_text()
LAYERS = 8
STEADY_STEPS = 50


def communicator(cluster: Cluster, node: Node | None = None) -> dict[str, Any]:
    """The latest job's communicator as `ringctl comms --plan --json` shows it; empty while there is
    none.

    ringd may still show that of the job before, whose processes have just ended.
    """
    shown = cluster.ringctl("comms", "--plan", "--json", node=node)
    assert shown.returncode == 0, shown.stderr
    found: list[dict[str, Any]] = json.loads(shown.stdout)["communicators"]
    latest = cluster.jobs[-1].job_id
    return next((entry for entry in found if entry["job_id"] == latest), {})


def plan(cluster: Cluster, node: Node | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = communicator(cluster, node).get("plan") or {}
    return shown


def wait_for_origin(cluster: Cluster) -> str:
    """Where the job's first plan comes from, once there is one."""
    seen = ["none"]

    def planned() -> bool:
        seen.append(plan(cluster).get("began_as", "none"))
        return seen[-1] != "none"

    wait_until(planned, "a plan")
    return seen[-1]


def start(cluster: Cluster, steps: int, **environment: str) -> JobRun:
    return cluster.start_job(STEADY, [1, 1], arguments=[str(steps)], environment=environment)


def check_plan_of(cluster: Cluster, node: Node) -> None:
    def measured() -> bool:
        return (plan(cluster, node).get("link") or {}).get("source") == "measured"

    def timed() -> bool:
        return all(bucket["measured_ms"] > 0 for bucket in plan(cluster, node)["buckets"])

    wait_until(measured, f"a measured link on {node}")
    shown = plan(cluster, node)
    assert shown["fusion"] == "learned"
    assert shown["link"]["latency_us"] > 0
    assert shown["link"]["gbit_per_second"] > 0.1
    assert int(shown["link"]["samples"]) > 0
    assert sum(bucket["tensors"] for bucket in shown["buckets"]) == LAYERS
    # The tensors come one by one, within 4 ms or more.
    assert shown["last_ready_ms"] > 2
    assert shown["predicted_ms"] >= shown["last_ready_ms"]
    assert shown["predicted_per_tensor_ms"] >= shown["last_ready_ms"]
    wait_until(timed, f"measured buckets on {node}")
    text = cluster.ringctl("comms", "--plan", node=node).stdout
    assert "64 MiB buckets" in text
    assert "layer0" in text
    assert "ring " in cluster.ringctl("comms", node=node).stdout


def test_the_link_is_measured_and_every_node_shows_the_plan(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    job = start(cluster, 800)
    for node in nodes:
        check_plan_of(cluster, node)
    job.expect_success()


def test_the_steady_state_needs_no_messages(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    notes = cluster.folder / "notes"
    notes.mkdir()
    job = cluster.start_job(UNTIL_TOLD, [1, 1], arguments=[str(notes), "2", "0.5"])
    steps = [notes / f"steps{rank}" for rank in range(len(nodes))]

    def done() -> int:
        """Steps that both ranks have done."""
        assert all(rank.running() for rank in job.ranks), job.transcript()
        return min(note.stat().st_size if note.exists() else 0 for note in steps)

    def messages() -> list[int]:
        return [int(communicator(cluster, node)["negotiation_messages"]) for node in nodes]

    def is_steady() -> bool:
        """Nothing is said in this many steps; not while a plan is learned, or another takes its
        place."""
        before, began = messages(), done()
        wait_until(lambda: done() >= began + STEADY_STEPS, f"{STEADY_STEPS} more steps")
        per_step = [communicator(cluster, node)["negotiation_messages_per_step"] for node in nodes]
        after = messages()
        print(began, before, after, per_step)
        return after == before and per_step == [0, 0]

    wait_until(lambda: done() > 0, "a step")
    assert all(count > 0 for count in messages()), "the first steps are negotiated"
    wait_until(is_steady, f"{STEADY_STEPS} steps without a message")
    (notes / "end").touch()
    job.expect_success()


def test_the_next_job_begins_with_the_kept_plan_even_of_a_new_ringd(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    first = start(cluster, 400)
    assert wait_for_origin(cluster) == "learned"
    first.expect_success()

    for restarted in (False, True):
        if restarted:
            for node in list(cluster.nodes):
                assert node.terminate() == 0
                cluster.restart(node)
        job = start(cluster, 400)
        assert wait_for_origin(cluster) == "kept"
        job.expect_success()
    kept = json.loads((cluster.folder / f"{nodes[0].name}.state" / "plans.json").read_text())
    assert kept["version"] == 1
    assert len(kept["plans"]) == 1
    assert sum(len(bucket["tensors"]) for bucket in kept["plans"][0]["buckets"]) == LAYERS


def test_unnamed_barriers_are_learned(cluster: Cluster) -> None:
    # Otherwise the ranks wait for each other by themselves.
    cluster.start_nodes(2, rank_exchange="false")
    source = """
        import ringd.torch as hvd
        hvd.init()
        for _ in range(200):
            hvd.barrier()
        print("under way", flush=True)
        import os, sys, time
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        hvd.shutdown()
        """
    seen = cluster.folder / "seen"
    job = cluster.start_job(source, [1, 1], arguments=[str(seen)])
    job.ranks[0].expect_output("under way")
    shown = communicator(cluster)
    assert int(shown["operations"]) >= 200
    assert int(shown["learned_operations"]) >= 150, shown
    assert len(shown["buckets"]) == 1
    seen.touch()
    job.expect_success()


def test_private_ringds_keep_plans_where_they_are_told_to(cluster: Cluster) -> None:
    show = """
        if hvd.rank() == 0:
            import json, subprocess
            shown = subprocess.run(
                [RINGCTL, "comms", "--plan", "--json"], capture_output=True, check=True, timeout=60
            )
            print("began as", json.loads(shown.stdout)["communicators"][0]["plan"]["began_as"], flush=True)
        """
    program = cluster.folder / "steady.py"
    end = "hvd.shutdown()"
    assert STEADY.count(end) == 1
    asks = textwrap.dedent(show).replace("RINGCTL", repr(str(binary("ringctl"))))
    program.write_text(STEADY.replace(end, asks + end))
    folder = cluster.folder / "learned"
    for origin in ("learned", "kept"):
        ran = cluster.ringctl(
            *("run", "--nodes", "2", "-n", "1", "--state-dir", str(folder)),
            *("--", python(), str(program), "200"),
            timeout_s=85,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"began as {origin}" in ran.stdout, ran.stdout + ran.stderr
    kept = json.loads((folder / "node-0" / "plans.json").read_text())
    assert len(kept["plans"]) == 1


def test_a_corrupt_file_is_named_and_ignored(cluster: Cluster) -> None:
    folder = cluster.folder / "node0.state"
    folder.mkdir()
    (folder / "plans.json").write_text('{"version": 1, "plans": [{"buckets": [{"tens')
    nodes = cluster.start_nodes(2)
    nodes[0].expect_output(f"{folder}/plans.json")
    job = start(cluster, 200)
    assert wait_for_origin(cluster) == "learned"
    job.expect_success()
    assert json.loads((folder / "plans.json").read_text())["version"] == 1


@pytest.mark.parametrize(("fusion", "buckets"), [("off", LAYERS), ("1GiB", 1)])
def test_fusion_is_pinned_by_a_setting(cluster: Cluster, fusion: str, buckets: int) -> None:
    cluster.start_nodes(2, fusion=fusion)
    job = start(cluster, 400)
    job.ranks[0].expect_output("under way")
    wait_until(lambda: len(plan(cluster).get("buckets", [])) == buckets, f"{buckets} buckets")
    job.expect_success()


@pytest.mark.parametrize(("asked", "buckets"), [("off", LAYERS), ("1GiB", 1)])
def test_fusion_is_pinned_by_a_job(cluster: Cluster, asked: str, buckets: int) -> None:
    cluster.start_nodes(2, fusion="64MiB" if asked == "off" else "off")
    job = start(cluster, 400, RINGD_FUSION=asked)
    job.ranks[0].expect_output("under way")
    wait_until(lambda: len(plan(cluster).get("buckets", [])) == buckets, f"{buckets} buckets")
    assert plan(cluster)["fusion"] == ("off" if asked == "off" else str(1 << 30))
    job.expect_success()


def test_fusion_that_makes_no_sense_is_refused_with_what_is_allowed(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    job = start(cluster, 1, RINGD_FUSION="64 bananas")
    assert 0 not in job.wait()
    assert "'64 bananas' (RINGD_FUSION); allowed: learned, pinned, off, or a size" in job.transcript()


def test_ranks_that_ask_for_different_fusion_hear_both(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    source = 'import os\nos.environ["RINGD_FUSION"] = str(4096 + int(os.environ["RANK"]))\n' + STEADY
    job = cluster.start_job(source, [1, 1], arguments=["1"])
    assert 0 not in job.wait()
    for rank in job.ranks:
        assert "4096" in rank.output, job.transcript()
        assert "4097" in rank.output, job.transcript()
        assert "RINGD_FUSION" in rank.output
