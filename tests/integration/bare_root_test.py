"""The wheel on systems that have none of the libraries it was built from."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration import bare_root
from tests.integration.bare_root import BareRoot
from tests.integration.cluster import Cluster
from tests.integration.processes import ROOT, Child, binary

# Mostly the mirror's; unpacking one system takes 4 s.
pytestmark = pytest.mark.timeout(300)

NEWER_SUITE = "trixie"
SOCKETS = "/run/ringd"

# Without PyTorch: fits y = 3 x + 1, each rank on points of its own.
FIT = """
    import sys
    from array import array

    import ringd

    assert ringd.__file__.startswith("/opt/site/"), ringd.__file__
    with ringd.Context() as context:
        rank, size = context.place.rank, context.place.size
        spec = ringd.TensorSpec(
            "gradient", data_type=ringd.DataType.FLOAT64, op=ringd.ReduceOp.AVERAGE, shape=(2,)
        )
        (gradient_number,) = context.register([spec])
        a = b = 0.0
        points = [rank + size * i / 4 for i in range(8)]
        for _ in range(400):
            errors = [a * x + b - (3 * x + 1) for x in points]
            gradient = array("d", [
                sum(e * x for e, x in zip(errors, points)) / len(points), sum(errors) / len(points)
            ])
            address, _ = gradient.buffer_info()
            context.wait(context.submit(gradient_number, address, address))
            a -= 0.1 * gradient[0]
            b -= 0.1 * gradient[1]
    print(f"Python {sys.version_info[1]} size {size} fits {a!r} {b!r}")
    assert abs(a - 3) < 1e-3 and abs(b - 1) < 1e-3
"""

TRAIN = """
    import ringd.torch as hvd
    import ringd
    import torch

    assert ringd.__file__.startswith("/opt/site/"), ringd.__file__
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    points = torch.randn(64, 2)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = (model(points) - points.prod(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print("size", hvd.size(), "trained", flat.double().sum().item().hex())
"""


def _installed(suite: str, packages: Sequence[str] = ()) -> Iterator[BareRoot]:
    folder = Path(tempfile.mkdtemp(prefix="ringd-bare-", dir="/tmp"))
    try:
        try:
            root = bare_root.make(suite, folder / suite, packages)
        except bare_root.NoSuchSuite:
            pytest.skip(f"apt's mirror has no Debian {suite}")
        (wheel,) = (ROOT / "dist").glob("ringd-*.whl")
        root.install(wheel)
        assert packages or root.foreign_libraries() == []
        yield root
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def own() -> Iterator[BareRoot]:
    yield from _installed(bare_root.OWN_SUITE)


@pytest.fixture(scope="module")
def newer() -> Iterator[BareRoot]:
    yield from _installed(NEWER_SUITE)


@pytest.fixture(scope="module")
def host() -> Iterator[BareRoot]:
    """With what the service's README says that a node needs."""
    readme = (ROOT / "deploy/systemd/README.md").read_text()
    found = re.search(r"apt-get install --no-install-recommends ((?:.*\\\n)*.*)\n", readme)
    assert found
    yield from _installed(bare_root.OWN_SUITE, found[1].replace("\\\n", " ").split())


def write(root: BareRoot, name: str, source: str) -> str:
    """The program's path inside."""
    (root.folder / "opt" / name).write_text(textwrap.dedent(source))
    return f"/opt/{name}"


def start_ranks(
    cluster: Cluster, roots: list[BareRoot], source: str, binds: dict[Path, str], python_path: str
) -> list[Child]:
    """One rank in each of `roots`, through the ringd of the cluster's only node, whose socket they
    see as containers do."""
    ranks = []
    for rank, root in enumerate(roots):
        variables = {
            "PYTHONPATH": python_path,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(roots)),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(len(roots)),
            "RINGD_SOCKET": f"{SOCKETS}/{cluster.nodes[0].socket.name}",
            "RINGD_JOB_ID": "bare",
        }
        command = ["python3", write(root, f"program-{rank}.py", source)]
        log = cluster.folder / f"rank{rank}.log"
        ranks.append(root.start(log, command, variables=variables, binds={cluster.folder: SOCKETS, **binds}))
    return ranks


def finished(ranks: list[Child], word: str) -> list[str]:
    """What each rank printed from `word` on, after all have succeeded."""
    try:
        codes = [rank.wait() for rank in ranks]
    finally:
        for rank in ranks:
            rank.destroy()
    transcript = "\n".join(rank.output for rank in ranks)
    assert codes == [0] * len(ranks), transcript
    return [rank.output.split(word, 1)[1].strip() for rank in ranks]


def test_ranks_on_two_debians_train_together(cluster: Cluster, own: BareRoot, newer: BareRoot) -> None:
    cluster.start_nodes(1)
    ranks = start_ranks(cluster, [own, newer], FIT, {}, "/opt/site")
    results = finished(ranks, "fits")
    assert results[0] == results[1]
    versions = {rank.output.split()[1] for rank in ranks}
    assert len(versions) == 2, "both systems have the same Python"
    assert all("size 2" in rank.output for rank in ranks)


def test_pytorch_trains_in_a_bare_root(cluster: Cluster, own: BareRoot) -> None:
    """PyTorch, whose wheel brings all that it needs, is the test environment's."""
    cluster.start_nodes(1)
    (packages,) = (ROOT / ".venv" / "lib").glob("python3*/site-packages")
    ranks = start_ranks(cluster, [own, own], TRAIN, {packages: "/opt/venv"}, "/opt/site:/opt/venv")
    results = finished(ranks, "trained")
    assert results[0] == results[1]
    assert all("size 2" in rank.output for rank in ranks)


@pytest.mark.parametrize("system", ["own", "newer"])
def test_one_rank_alone_trains_in_a_bare_root(
    cluster: Cluster, system: str, request: pytest.FixtureRequest
) -> None:
    root: BareRoot = request.getfixturevalue(system)
    command = ["python3", write(root, "alone.py", FIT)]
    rank = root.start(cluster.folder / "alone.log", command, variables={"PYTHONPATH": "/opt/site"})
    finished([rank], "fits")
    assert "size 1" in rank.output


def test_the_clusters_key_is_made_with_the_packages_that_the_services_readme_names(host: BareRoot) -> None:
    (command,) = re.findall(r"openssl rand -hex 32", (ROOT / "deploy/systemd/install").read_text())
    made = subprocess.run(
        host.command(command.split()), capture_output=True, text=True, timeout=60, check=False
    )
    assert len(bytes.fromhex(made.stdout)) == 32, made.stderr


def test_ringd_runs_with_the_packages_that_the_services_readme_names(
    cluster: Cluster, host: BareRoot
) -> None:
    for name in ("ringd", "ringd-engine", "ringctl"):
        shutil.copy(binary(name), host.folder / "usr/bin" / name)
    command = ["ringctl", "run", "-n", "2", "--timeout", "60", "--", "python3", write(host, "fit.py", FIT)]
    run = host.start(cluster.folder / "run.log", command, variables={"PYTHONPATH": "/opt/site"})
    finished([run], "fits")
    assert run.output.count("size 2 fits") == 2
