"""ringd starts before its interface has a carrier or an address, or is there: it waits, says so,
takes it when it comes. One that goes while ringd serves is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.processes import wait_until
from tests.integration.shaped_line import ShapedLine, configure, ip

PROGRAM = """
    import sys
    from pathlib import Path

    import ringd

    context = ringd.Context()
    import array

    values = array.array("f", [1.0] * 1024)
    (registration,) = context.register([ringd.TensorSpec("sum", shape=(1024,))])
    address = values.buffer_info()[0]
    context.wait(context.submit(registration, address, address))
    assert values[0] == context.place.size
    print("summed", flush=True)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")


@pytest.fixture
def line() -> Iterator[ShapedLine]:
    line = ShapedLine(1000)
    yield line
    line.close()


def namespace(line: ShapedLine, end: int) -> str:
    return line.inside(end)[-1]


def set_carrier(line: ShapedLine, end: int, state: str) -> None:
    """A veth has a carrier while the other end is up."""
    ip("-n", namespace(line, 1 - end), "link", "set", "eth0", state)
    if state == "up":
        network = line.address(0).rpartition(".")[0] + ".0/24"
        route = [network, "dev", "eth0", "src", line.address(1 - end), "congctl", "cubic"]
        ip("-n", namespace(line, 1 - end), "route", "replace", *route)
    # The kernel looks after a link's changes once a second at most.
    show = ["ip", "-n", namespace(line, end), "link", "show", "eth0"]
    wait_until(
        lambda: ("NO-CARRIER" in subprocess.check_output(show, text=True)) == (state == "down"),
        f"the carrier is {state}",
    )


def start(line: ShapedLine, end: int, folder: Path, **settings: object) -> Node:
    own = {"peer_address": ":7117", "peer_interface": "eth0"}
    return Node(f"node{end}", folder, own | settings, line.inside(end))


def start_the_other_and_run_job(cluster: Cluster, line: ShapedLine) -> None:
    cluster.nodes.append(start(line, 1, cluster.folder))
    cluster.nodes[1].wait_until_ready()
    cluster.start_job(PROGRAM, [1, 1]).expect_success()


def test_a_carrier_that_comes_soon_is_waited_for(cluster: Cluster, line: ShapedLine) -> None:
    set_carrier(line, 0, "down")
    first = start(line, 0, cluster.folder)
    cluster.nodes.append(first)
    first.expect_output("waiting for interfaces: eth0 has no carrier")
    time.sleep(0.5)
    assert "serves" not in first.output
    set_carrier(line, 0, "up")
    first.wait_until_ready()
    first.expect_output("interfaces are ready: eth0")
    start_the_other_and_run_job(cluster, line)


def test_a_carrier_that_comes_late_is_taken(cluster: Cluster, line: ShapedLine) -> None:
    set_carrier(line, 0, "down")
    first = start(line, 0, cluster.folder, link_timeout="300ms")
    cluster.nodes.append(first)
    first.wait_until_ready()
    first.expect_output("eth0 has no carrier, also after link_timeout")
    set_carrier(line, 0, "up")
    first.expect_output("interfaces are ready: eth0")
    first.expect_output("all interfaces carry data for jobs to come")
    start_the_other_and_run_job(cluster, line)


def test_a_carrier_that_goes_while_ringd_serves_is_told(cluster: Cluster, line: ShapedLine) -> None:
    first = start(line, 0, cluster.folder)
    cluster.nodes.append(first)
    first.wait_until_ready()
    assert "network" not in cluster.ringctl("status").stdout
    set_carrier(line, 0, "down")
    first.expect_output("eth0 has no carrier: jobs over several nodes fail where they need it")
    wait_until(lambda: "eth0 has no carrier" in cluster.ringctl("status").stdout, "ringctl tells")
    assert json.loads(cluster.ringctl("status", "--json").stdout)["link_problems"] == "eth0 has no carrier"
    set_carrier(line, 0, "up")
    first.expect_output("interfaces are ready: eth0")
    wait_until(lambda: "no carrier" not in cluster.ringctl("status").stdout, "ringctl tells no more")
    start_the_other_and_run_job(cluster, line)


def test_an_address_that_comes_while_ringd_serves_is_used(cluster: Cluster, line: ShapedLine) -> None:
    inside, address = namespace(line, 0), line.address(0)
    ip("-n", inside, "addr", "add", "10.99.0.1/24", "dev", "eth0", "noprefixroute")
    ip("-n", inside, "addr", "del", f"{address}/24", "dev", "eth0")
    first = start(line, 0, cluster.folder)
    cluster.nodes.append(first)
    first.wait_until_ready()
    assert first.peer_address == "10.99.0.1:7117"
    # As from a DHCP server that has changed its mind; or IPv4 after IPv6.
    configure(inside, address, line.rate_mbit)
    ip("-n", inside, "addr", "del", "10.99.0.1/24", "dev", "eth0")
    first.expect_output(f"the interfaces have other addresses: eth0 {address}")
    cluster.nodes.append(start(line, 1, cluster.folder))
    cluster.nodes[1].wait_until_ready()
    rendezvous = {"RINGD_RENDEZVOUS": f"{address}:7117"}
    cluster.start_job(PROGRAM, [1, 1], environment=rendezvous).expect_success()


def test_two_interfaces_in_one_network_are_told(cluster: Cluster, line: ShapedLine) -> None:
    inside = namespace(line, 0)
    ip("-n", inside, "link", "add", "eth1", "type", "veth", "peer", "name", "far1")
    ip("-n", inside, "addr", "add", line.address(0).rpartition(".")[0] + ".77/24", "dev", "eth1")
    for end in ("eth1", "far1"):
        ip("-n", inside, "link", "set", end, "up")
    first = start(line, 0, cluster.folder, data_interfaces="eth0,eth1")
    cluster.nodes.append(first)
    first.expect_output("eth0 and eth1 are both in ")


def test_a_ringd_that_waits_for_a_carrier_ends_when_it_is_told_to(cluster: Cluster, line: ShapedLine) -> None:
    set_carrier(line, 0, "down")
    first = start(line, 0, cluster.folder)
    cluster.nodes.append(first)
    first.expect_output("waiting for interfaces: eth0 has no carrier")
    assert first.terminate() == 0


def test_a_sighup_while_it_waits_for_a_carrier_is_heard(cluster: Cluster, line: ShapedLine) -> None:
    set_carrier(line, 0, "down")
    file = cluster.folder / "ringd.toml"
    file.write_text("max_weight = 10\n")
    first = start(line, 0, cluster.folder, config=file)
    cluster.nodes.append(first)
    first.expect_output("waiting for interfaces: eth0 has no carrier")
    file.write_text("max_weight = 20\n")
    first.send(signal.SIGHUP)
    time.sleep(0.5)
    set_carrier(line, 0, "up")
    first.expect_output("SIGHUP: settings taken over: max_weight")


def test_an_interface_that_is_not_there_yet_is_waited_for(cluster: Cluster, line: ShapedLine) -> None:
    first = start(line, 0, cluster.folder, peer_interface="late0", link_timeout="300s")
    cluster.nodes.append(first)
    first.expect_output("waiting for interfaces: late0 does not exist")
    ours, theirs = namespace(line, 0), namespace(line, 1)
    ip("-n", ours, "link", "add", "late0", "type", "veth", "peer", "name", "late0", "netns", theirs)
    # No use to others; where the kernel has IPv6, each interface has one as soon as it is up.
    ip("-n", ours, "addr", "add", "fe80::1/64", "dev", "late0", "nodad", check=False)
    for end in (ours, theirs):
        ip("-n", end, "link", "set", "late0", "up")
    has_ipv6 = Path("/proc/net/if_inet6").exists()
    first.expect_output(f"late0 has no address{' but a link-local one' if has_ipv6 else ''}")
    assert "serves" not in first.output
    ip("-n", ours, "addr", "add", "10.79.2.1/24", "dev", "late0")
    first.wait_until_ready()
    first.expect_output("interfaces are ready: late0")
