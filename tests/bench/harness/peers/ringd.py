"""ringd itself: one daemon per node, the ranks as its trainers."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from .. import paths
from ..goals import BEFORE
from ..session import Launch
from ..site import Site
from .peer import HUGE_HEAP_VARIABLES, Peer, Say, Unavailable
from .training import TRAININGS, project_python, training_command, training_environment

TARGETS = {
    "ringd": "daemon:ringd",
    "ringd-engine": "daemon:ringd-engine",
    "ringctl": "client/cli:ringctl",
    "ringd_driver": "tests/bench:ringd_driver",
}

WHEEL = "client/python:wheel"


# What a configuration adds to the daemon's and the ranks' environment.
CONFIGURATIONS: dict[str, dict[str, str]] = {
    "learned": {},
    "fixed-64MiB": {"RINGD_FUSION": "64MiB"},
    "no-fusion": {"RINGD_FUSION": "off"},
    "no-background": {"RINGD_BACKGROUND": "0"},
    "huge-heap": HUGE_HEAP_VARIABLES,
    # Nobody spins, or everybody does, for longer than a small operation takes.
    "sleep": {"RINGD_SPIN": "0s", "RINGD_SPIN_US": "0"},
    "spin": {"RINGD_SPIN": "50us", "RINGD_SPIN_US": "50"},
    # UCX's TCP in place of ringd's own.
    "ucx": {"RINGD_BACKEND": "ucx"},
    **{name: training_environment(name) for name in TRAININGS},
}


class Ringd(Peer):
    """Configurations: see CONFIGURATIONS. Neither the daemon nor the ranks are told anything about
    the row."""

    def __init__(self, name: str = "ringd", binaries: Path = paths.BINARIES) -> None:
        """`binaries` has the programs of TARGETS, and for trainings the Python package in the
        folder `python`."""
        self.name = name
        self.daemon = binaries / "ringd"
        self.control_tool = binaries / "ringctl"
        self.driver = binaries / "ringd_driver"
        self.package = binaries / "python"

    def install(self, say: Say, may_install: bool) -> None:
        """Builds, and keeps copies: the next build must not change what a long run measures."""
        if may_install:
            say("building ringd and its driver")
            built = build([f"//{target}" for target in (*TARGETS.values(), WHEEL)])
            for name, target in TARGETS.items():
                fresh = paths.BINARIES / f"{name}.new"
                shutil.copy2(built / target.replace(":", "/"), fresh)
                fresh.rename(paths.BINARIES / name)
            unpack_wheel(built / "client" / "python", paths.BINARIES / "python")
        self._check()

    def _check(self) -> None:
        # ringd starts the engine that lies beside it.
        for binary in (self.daemon, self.daemon.with_name("ringd-engine"), self.driver):
            if not os.access(binary, os.X_OK):
                raise Unavailable(f"{binary} is not built")

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        topology = site.topology
        extra = CONFIGURATIONS[configuration]
        port = site.port()
        launches = [
            Launch(site.inside(node, self._daemon_command(site, node, port, control)), extra)
            for node in range(topology.nodes)
        ]
        for rank in range(topology.ranks):
            node, local_rank = divmod(rank, topology.ranks_per_node)
            environment = {
                "RANK": str(rank),
                "WORLD_SIZE": str(topology.ranks),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(topology.ranks_per_node),
                "MASTER_ADDR": site.address(0),
                "RINGD_PEER_PORT": str(port),
                "RINGD_SOCKET": socket_path(control, node),
                "RINGD_JOB_ID": control.name,
                # Without a cluster key a job over several nodes needs one of 16 characters.
                "RINGD_JOB_SECRET": "nobody else is on these lines",
                **extra,
            }
            # The ranks of a node wait for its daemon.
            script = 'until [ -s "$1" ]; do sleep 0.02; done; shift; exec "$@"'
            argv = ["sh", "-c", script, "sh", ready_path(control, node), str(self.driver), str(control)]
            if configuration in TRAININGS:
                environment["PYTHONPATH"] = str(self._package())
                argv[5:] = training_command(project_python(), control, "ringd", rank)
            launches.append(Launch(site.inside(node, argv), environment))
        return launches

    def _package(self) -> Path:
        if not self.package.is_dir():
            raise Unavailable(f"{self.package} is not there")
        return self.package

    def _daemon_command(self, site: Site, node: int, port: int, control: Path) -> list[str]:
        return [
            str(self.daemon),
            f"--socket={socket_path(control, node)}",
            f"--peer-address={site.address(node)}:{port}",
            f"--node-name=node{node}",
            f"--state-dir={control}/state{node}",
            f"--ready-file={ready_path(control, node)}",
            # The nodes are one machine: shared memory between them would be cheating.
            "--transports=tcp,self",
            "--arena-bytes=8GiB",
            "--log-level=warning",
        ]


class RingdBefore(Ringd):
    """Another build of ringd, which takes turns with the present one."""

    def __init__(self, binaries: Path) -> None:
        super().__init__(BEFORE, binaries.resolve())

    def install(self, say: Say, may_install: bool) -> None:
        """Takes what is there."""
        self._check()


def socket_path(control: Path, node: int) -> str:
    return f"{control}/ringd{node}.sock"


def ready_path(control: Path, node: int) -> str:
    return f"{control}/ready{node}"


def build(targets: list[str]) -> Path:
    """Builds with Bazel, optimised; seconds when there is nothing to do. Returns the folder of the
    binaries. RINGD_BENCH_BAZEL names start-up options, such as another output base. Raises
    Unavailable."""
    bazel = ["bazel", *os.environ.get("RINGD_BENCH_BAZEL", "").split()]
    run_bazel([*bazel, "build", *targets])
    return Path(run_bazel([*bazel, "info", "bazel-bin"]).strip())


def unpack_wheel(folder: Path, target: Path) -> None:
    """Puts the one wheel of a folder where PYTHONPATH can name it. Raises Unavailable."""
    built = sorted(folder.glob("ringd-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not built:
        raise Unavailable(f"no wheel in {folder}")
    shutil.rmtree(target, ignore_errors=True)
    with zipfile.ZipFile(built[-1]) as archive:
        archive.extractall(target)


def run_bazel(command: list[str]) -> str:
    done = subprocess.run(command, cwd=paths.REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line or "error:" in line]
        raise Unavailable("ringd does not build: " + " | ".join(errors[:4] or done.stderr.splitlines()[-4:]))
    return done.stdout
