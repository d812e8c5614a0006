"""The include check must notice what it is there for, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lint import layers
from tests.lint.source_tree import SourceTree


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("proto/shm/spsc_ring.h", "backends/backend.h"),
        ("backends/ucx/worker.cc", "daemon/engine/engine.h"),
        ("client/core/attach/attachment.cc", "daemon/attach/attach_server.h"),
        ("daemon/main.cc", "client/ringd.h"),
        ("client/core/tensors/staging.cc", "client/core/lanes/node/local_operations.h"),
        ("client/core/tensors/staging.cc", "client/core/context.h"),
        ("client/core/lanes/rank_exchange/step_tail.cc", "client/core/lanes/node/local_operations.h"),
        ("client/core/lanes/rank_exchange/step_tail.cc", "client/core/lanes/lane.h"),
        ("client/core/lanes/wire/wire_lane.h", "client/core/lanes/node/node_lane.h"),
        ("client/core/lanes/lane.h", "client/core/lanes/wire/wire_lane.h"),
        ("client/core/lanes/node/node_lane.h", "client/core/context.h"),
        ("client/core/lanes/no_such_room/thing.h", "client/core/lanes/lane.h"),
        ("client/core/lanes/node/local_operations.cc", "grpcpp/grpcpp.h"),
        ("daemon/jobs/plans/plan_store.cc", "daemon/jobs/coordinator/job_coordinator.h"),
        ("daemon/schedule/node/node_scheduler.cc", "daemon/schedule/coordinator/coordinator.h"),
        ("daemon/schedule/no_such_room/thing.cc", "daemon/schedule/protocol/messages.h"),
        ("daemon/engine/engine.cc", "tests/fake_clock.h"),
        ("daemon/engine/engine.cc", "ucp/api/ucp.h"),
        ("backends/loopback/wire.cc", "ucp/api/ucp.h"),
        ("backends/ucx/worker.cc", "nccl.h"),
        ("daemon/jobs/job.cc", "cuda.h"),
        ("backends/nccl/nccl_api.cc", "cuda_runtime.h"),
        ("daemon/engine/engine.cc", "grpcpp/grpcpp.h"),
        ("daemon/peers/peer_stream.cc", "grpcpp/grpcpp.h"),
        ("backends/ucx/worker.cc", "proto/rpc/peer.grpc.pb.h"),
        ("daemon/schedule/planning/bucket_planner.cc", "thread"),
        ("daemon/schedule/planning/bucket_planner.h", "proto/base/mutex.h"),
        ("daemon/schedule/planning/bucket_planner.cc", "sys/socket.h"),
        ("daemon/schedule/planning/bucket_planner.cc", "../jobs/job.h"),
    ],
)
def test_an_include_across_a_border_is_named(path: str, target: str) -> None:
    assert layers.check_include(path, target) is not None


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("proto/shm/spsc_ring.h", "proto/base/cache_line.h"),
        ("backends/ucx/worker.cc", "ucp/api/ucp.h"),
        ("backends/cuda/cuda_driver.h", "cudaTypedefs.h"),
        ("backends/ucx/worker.cc", "proto/types/ids.h"),
        ("daemon/main.cc", "backends/ucx/transport.h"),
        ("daemon/rpc/client_service.cc", "grpcpp/grpcpp.h"),
        ("client/core/attach/attachment.cc", "proto/attach/handshake.h"),
        ("client/core/context.h", "client/core/lanes/node/local_operations.h"),
        ("client/core/lanes/node/job_memory.h", "client/core/tensors/arena.h"),
        ("client/core/lanes/node/node_lane.h", "client/core/lanes/lane.h"),
        ("client/core/lanes/lane.h", "client/core/tensors/staging.h"),
        ("client/core/attach/control_channel.cc", "grpcpp/grpcpp.h"),
        ("client/cli/main.cc", "client/core/attach/library_version.h"),
        ("daemon/schedule/planning/bucket_planner.cc", "vector"),
        ("daemon/jobs/job.cc", "daemon/jobs/coordinator/job_coordinator.h"),
        ("daemon/jobs/plans/plan_store.h", "daemon/jobs/membership/membership.h"),
        ("tests/daemon/engine/engine_test.cc", "daemon/engine/engine.h"),
        ("tests/backends/ucx/worker_test.cc", "ucp/api/ucp.h"),
    ],
)
def test_an_include_within_the_rules_passes(path: str, target: str) -> None:
    assert layers.check_include(path, target) is None


def test_the_check_reads_files_and_gives_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "proto").mkdir()
    (tmp_path / "proto" / "a.h").write_text(
        '#include <vector>\n#  include "daemon/b.h"\n#include "proto/none.h"\n'
    )
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)

    problems = layers.check(SourceTree(tmp_path))

    assert len(problems) == 2
    assert problems[0].startswith("proto/a.h:2: proto/ must not include")
    assert problems[1].startswith('proto/a.h:3: "proto/none.h" is not in the tree')


def test_a_generated_header_exists_if_its_proto_file_does(tmp_path: Path) -> None:
    rpc = tmp_path / "proto" / "rpc"
    rpc.mkdir(parents=True)
    (rpc / "peer.proto").touch()
    (tmp_path / "daemon").mkdir()
    includes = [f'#include "proto/rpc/{name}"\n' for name in ("peer.pb.h", "peer.grpc.pb.h", "gone.pb.h")]
    (tmp_path / "daemon" / "a.cc").write_text("".join(includes))
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)

    problems = layers.check(SourceTree(tmp_path))

    assert len(problems) == 1
    assert "gone.pb.h" in problems[0]
