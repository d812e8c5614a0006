"""Tensors in device memory, from the trainers' streams through two engines and back: on emulated
GPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus
from tests.integration.failures.events import expect_words, parse_events

SUMS = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer()
        rank, size, stream = trainer.rank, trainer.size, trainer.stream
        # A step: what comes out is there when the trainer's stream goes on, not when its host does.
        tensors = [trainer.tensor(f"gradient {i}", [float(i + rank)] * (100 + i)) for i in range(5)]
        for step in range(4):
            operations = [tensor.all_reduce() for tensor in tensors]
            for operation in operations:
                trainer.context.stream_wait(operation, stream)
            for i, tensor in enumerate(tensors):
                expected = float(sum(i + r for r in range(size)))
                assert tensor.read() == [expected] * (100 + i), (step, i, tensor.read()[:4], expected)
            trainer.context.wait_all(operations)

        # The host's wait does as well.
        def whole(name, values, code, **spec):
            tensor = trainer.tensor(name, values, code, **spec)
            trainer.context.wait(tensor.all_reduce())
            return tensor.read()

        DataType, ReduceOp = ringd.DataType, ringd.ReduceOp
        assert whole("average", [float(rank)] * 3, "f", op=ReduceOp.AVERAGE) == [(size - 1) / 2] * 3
        assert whole("scaled", [1.0] * 5, "f", prescale=2.0, postscale=0.5) == [float(size)] * 5
        assert whole("max", [rank, -rank], "i", op=ReduceOp.MAX, data_type=DataType.INT32) == [size - 1, 0]
        assert whole("int average", [rank - 2], "q", op=ReduceOp.AVERAGE, data_type=DataType.INT64) == [
            sum(r - 2 for r in range(size)) // size
        ]
        # Tensors of the host go the other way, in the same job.
        assert trainer.all_reduce("on the host") == size
        say("sums are right")


    run(main)
"""


def start(cluster: Cluster, source: str, ranks_per_node: list[int], **options: Any) -> JobRun:
    """A job on nodes with one emulated GPU for each of their ranks."""
    most = max(ranks_per_node)
    environment = give_gpus(cluster, **({"cuda_devices": most} | options))
    cluster.start_nodes(len(ranks_per_node))
    return cluster.start_job(source, ranks_per_node, environment=environment)


BROADCASTS = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        context, rank, size = trainer.context, trainer.rank, trainer.size
        kind = ringd.CollectiveKind.BROADCAST
        for root in range(size):
            spec = {"kind": kind, "root_rank": root}
            # Fused, apart, of a type that NCCL does not reduce, and empty.
            tensors = [trainer.tensor(f"{root}: {i}", [float(i + rank)] * (7 + i), **spec) for i in range(5)]
            flags = {"data_type": ringd.DataType.BOOL} | spec
            tensors.append(trainer.tensor(f"{root}: flags", [rank == root] * 3, "B", **flags))
            tensors.append(trainer.tensor(f"{root}: nothing", [], **spec))
            context.wait_all([tensor.submit() for tensor in tensors])
            for i in range(5):
                assert tensors[i].read() == [float(i + root)] * (7 + i), (root, i, tensors[i].read())
            assert tensors[5].read() == [1] * 3
        trainer.context.wait(trainer.tensor("sum", [1.0]).all_reduce())


    run(main)
"""


@pytest.mark.parametrize("layout", [[2, 1], [3]], ids=str)
def test_broadcasts_from_each_rank(cluster: Cluster, layout: list[int]) -> None:
    start(cluster, BROADCASTS, layout).expect_success()


def test_two_trainers_reduce_tensors_on_their_gpus_over_two_engines(cluster: Cluster) -> None:
    job = start(cluster, SUMS, [1, 1])
    job.expect_success()
    job.expect_output("sums are right")


@pytest.mark.parametrize("layout", [[2, 1, 2], [3], [1]], ids=str)
def test_several_ranks_of_a_node_have_a_gpu_each(cluster: Cluster, layout: list[int]) -> None:
    job = start(cluster, SUMS, layout)
    job.expect_success()


def error_of(job: JobRun, name: str = "refused") -> list[str]:
    return [event["text"] for event in parse_events(job.transcript(), name)]


REFUSED = """
    import os

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import Trainer, run, say_error


    def main():
        trainer = Trainer()
        try:
            trainer.context.device_open(0, int(os.environ["SLAB"]))
        except ringd.RingdError as error:
            say_error(error, "refused")
        # The job goes on.
        assert trainer.all_reduce("on the host") == trainer.size


    run(main)
"""


def test_without_nccl_the_rank_that_asks_for_a_gpu_hears_which_file_is_missing(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.settings["nccl_library"] = "/no/such/libnccl.so.2"
    cluster.start_nodes(2)
    job = cluster.start_job(REFUSED, [1, 1], environment=environment | {"SLAB": "65536"})
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    expect_words(errors[0], "/no/such/libnccl.so.2")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cuda_driver_version": 11000}, ["11.0", "libcuda.so.1"]),
        ({"cuda_without": "cuMemCreate"}, ["cuMemCreate", "libcuda.so.1"]),
        ({"cuda_stream_memory_operations": 0}, ["stream memory operations"]),
        ({"cuda_devices": 0}, ["cuInit", "no CUDA-capable device"]),
    ],
    ids=["old", "without a function", "without stream memory operations", "without a GPU"],
)
def test_a_driver_that_can_t_be_used_is_told_with_the_reason(
    cluster: Cluster, settings: dict[str, Any], words: list[str]
) -> None:
    environment = give_gpus(cluster, **settings)
    cluster.start_nodes(1)
    job = cluster.start_job(REFUSED, [2], environment=environment | {"SLAB": "65536"})
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    for error in errors:
        expect_words(error, *words)


def test_a_slab_larger_than_the_gpu_is_refused_with_the_amounts(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_memory_mib=64)
    cluster.start_nodes(2)
    job = cluster.start_job(REFUSED, [1, 1], environment=environment | {"SLAB": str(1 << 30)})
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    expect_words(errors[0], "GPU-", "slab_bytes")


COMMUNICATORS = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        context, rank, size = trainer.context, trainer.rank, trainer.size
        pair = [rank - rank % 2, rank - rank % 2 + 1]
        communicator = context.create_communicator(f"pair {pair[0]}", pair)
        tensors = {
            # The same name is another tensor in another communicator.
            "all": trainer.tensor("gradient", [float(rank)] * 9),
            "pair": trainer.tensor("gradient", [float(rank)] * 9, communicator=communicator),
        }
        address = context.arena_alloc(64)
        (host,) = context.register([ringd.TensorSpec("host", shape=(4,), communicator=communicator)])
        for _ in range(3):
            operations = [tensor.all_reduce() for tensor in tensors.values()]
            operations.append(context.submit(host, address, address))
            context.wait_all(operations)
            assert tensors["all"].read() == [float(sum(range(size)))] * 9
            assert tensors["pair"].read() == [float(sum(pair))] * 9
        context.unregister([tensors["pair"].registration])
        context.destroy_communicator(communicator)
        assert trainer.all_reduce("after it") == size


    run(main)
"""


@pytest.mark.parametrize("layout", [[4], [2, 2], [1, 2, 1]], ids=str)
def test_communicators_of_some_ranks_have_tensors_on_gpus(cluster: Cluster, layout: list[int]) -> None:
    start(cluster, COMMUNICATORS, layout).expect_success()


DISAGREE = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say_error


    def main():
        trainer = DeviceTrainer()
        try:
            if trainer.rank == 0:
                tensor = trainer.tensor("gradient", [1.0] * 4)
                operation = tensor.all_reduce()
                trainer.context.stream_wait(operation, trainer.stream)
                tensor.read()  # the stream goes on
                trainer.context.wait(operation)
            else:
                trainer.all_reduce("gradient")
        except ringd.InvalidArgumentError as error:
            say_error(error, "refused")
        tensor = trainer.tensor("other", [1.0] * 4)
        trainer.context.wait(tensor.all_reduce())
        assert tensor.read() == [2.0] * 4


    run(main)
"""


def test_ranks_that_disagree_host_or_device_hear_both(cluster: Cluster) -> None:
    job = start(cluster, DISAGREE, [1, 1])
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    for error in errors:
        expect_words(error, "gradient", "in device memory", "in host memory", "rank 0", "rank 1")


def test_ranks_of_one_node_that_disagree_host_or_device_lose_their_job(cluster: Cluster) -> None:
    job = start(cluster, DISAGREE, [2])
    assert job.wait() == [3, 3]
    for error in error_of(job, "error"):
        expect_words(error, "'gradient'", "rank 1 has it in host memory", "rank 0 on a GPU")


def test_the_trace_of_a_job_on_one_node_names_what_is_on_gpus(cluster: Cluster) -> None:
    program = """
        import time

        import ringd
        from device_trainer import DeviceTrainer
        from trainer import run, say


        def main():
            trainer = DeviceTrainer()
            context = trainer.context
            tensor = trainer.tensor("on a GPU", [1.0] * 4)
            (host,) = context.register([ringd.TensorSpec("on the host", shape=(4096,))])
            address = context.arena_alloc(4 * 4096)
            for step in range(1000):
                context.wait(context.submit(host, address, address))
                context.wait(tensor.all_reduce())
                if step == 0:
                    say("reduced")
                time.sleep(0.05)


        run(main)
    """
    job = start(cluster, program, [2])
    job.expect_output('"reduced"')
    trace = cluster.folder / "trace.json"
    cluster.ringctl("trace", "--job", job.job_id, "--seconds", "1", "--out", str(trace))
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"on the host", "on a GPU"} <= names, sorted(names)


def test_ringctl_comms_shows_the_gpus_of_a_communicator(cluster: Cluster) -> None:
    program = """
        import time

        from device_trainer import DeviceTrainer
        from trainer import run, say


        def main():
            trainer = DeviceTrainer()
            trainer.context.wait(trainer.tensor("gradient", [1.0] * 4).all_reduce())
            say("reduced")
            time.sleep(60)


        run(main)
    """
    job = start(cluster, program, [1, 1])
    job.expect_output('"reduced"')
    reply = json.loads(cluster.ringctl("comms", "--json").stdout)
    (entry,) = reply["communicators"]
    (device,) = entry["devices"]
    expect_words(device, "GPU-", "NCCL 2.29.7", "rank 0 of 2", "ready")


def test_behind_the_file_wall_engines_open_the_libraries_that_settings_name(cluster: Cluster) -> None:
    # Others may attach, so engines are walled in. The emulated NCCL can't bring ranks of two
    # engines together there: its sockets are abstract ones, which NCCL's between nodes are not.
    cluster.settings["allowed_users"] = "nobody"
    program = """
        from device_trainer import DeviceTrainer
        from trainer import run


        def main():
            trainer = DeviceTrainer()
            tensor = trainer.tensor("gradient", [1.0] * 4)
            assert tensor.read() == [0.0] * 4
            assert trainer.all_reduce("on the host") == trainer.size


        run(main)
    """
    start(cluster, program, [1, 1]).expect_success()


MISUSES = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import Trainer, run


    def refused(error, words, call, *arguments):
        try:
            call(*arguments)
        except error as caught:
            for word in words:
                assert word in str(caught), (word, str(caught))
        else:
            raise AssertionError(f"{words}: nothing was refused")


    def main():
        trainer = DeviceTrainer(slab_bytes=1 << 20)
        context, stream = trainer.context, trainer.stream
        tensor = trainer.tensor("gradient", [1.0] * 8)
        number, address = tensor.registration, tensor.address
        invalid = ringd.InvalidArgumentError
        refused(ringd.AlreadyExistsError, ["GPU"], context.device_open, 0, 1024)
        refused(ringd.ResourceExhaustedError, ["slab_bytes"], context.device_alloc, 1 << 30)
        # Where it is not, or not all.
        refused(invalid, ["gradient"], context.submit_on_stream, number, 4096, 4096, stream)
        beyond = address + (8 << 20)
        refused(invalid, ["gradient"], context.submit_on_stream, number, address, beyond, stream)
        refused(invalid, ["overlap"], context.submit_on_stream, number, address, address + 4, stream)
        refused(invalid, ["aligned"], context.submit_on_stream, number, address + 2, address + 2, stream)
        # By the other way.
        refused(invalid, ["ringd_submit_on_stream"], context.submit, number, address, address)
        refused(invalid, ["ringd_submit_on_stream"], context.submit_awaited, number, address, address)
        (host,) = context.register([ringd.TensorSpec("host", shape=(2,))])
        refused(invalid, ["ringd_submit"], context.submit_on_stream, host, address, address, stream)
        refused(ringd.NotFoundError, ["operation"], context.stream_wait, 4711, stream)
        spec = ringd.TensorSpec("m", shape=(2,), memory=2)
        refused(invalid, ["memory is 2"], context.register, [spec])
        # An operation that NCCL refuses ends with that on all ranks, and the job goes on.
        spec = {"data_type": ringd.DataType.BOOL, "op": ringd.ReduceOp.SUM}
        odd = trainer.tensor("odd", [1] * 16, "B", **spec)
        operation = odd.all_reduce()
        context.stream_wait(operation, stream)
        # What waits for it goes on, whoever looks first.
        odd.read()
        refused(invalid, ["'odd'"], context.wait, operation)
        context.wait(tensor.all_reduce())
        assert tensor.read() == [2.0] * 8


    run(main)
"""


def test_what_is_wrong_with_a_device_tensor_is_said_and_the_job_goes_on(cluster: Cluster) -> None:
    start(cluster, MISUSES, [1, 1]).expect_success()


MANY = """
    from device_trainer import DeviceTrainer
    from trainer import run

    COUNT = 1200


    def main():
        trainer = DeviceTrainer(slab_bytes=8 << 20)
        context = trainer.context
        streams = [trainer.stream, trainer.driver.new_stream()]
        tensors = [trainer.tensor(f"gradient {i}", [float(i)] * 4) for i in range(COUNT)]
        # On two streams, in different orders on the ranks.
        order = list(range(COUNT)) if trainer.rank == 0 else list(range(COUNT - 1, -1, -1))
        operations = [0] * COUNT
        for i in order:
            operations[i] = tensors[i].all_reduce(streams[i % 2])
        for i, tensor in enumerate(tensors):
            context.stream_wait(operations[i], streams[1 - i % 2])
            if i % 50 == 0:
                assert tensor.read(streams[1 - i % 2]) == [2.0 * i] * 4
        context.wait_all(operations)


    run(main)
"""


def test_many_operations_are_in_flight_on_two_streams_in_different_orders(cluster: Cluster) -> None:
    start(cluster, MANY, [1, 1]).expect_success()


SOME_RANKS = """
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        context = trainer.context
        members = [3, 0]
        worlds = [trainer.tensor(f"gradient {i}", [float(trainer.rank)] * 4) for i in range(20)]
        some = []
        number = 0
        if trainer.rank in members:
            number = context.create_communicator("some", members)
            some = [
                trainer.tensor(f"gradient {i}", [float(trainer.rank)] * 4, communicator=number)
                for i in range(20)
            ]
        # Both communicators have operations in flight at once, on GPUs that run one after the other.
        for _ in range(10):
            mixed = worlds + some if trainer.rank < 2 else [*reversed(some), *worlds]
            operations = [tensor.all_reduce() for tensor in mixed]
            context.wait_all(operations)
            assert all(tensor.read() == [6.0] * 4 for tensor in worlds)
            assert all(tensor.read() == [3.0] * 4 for tensor in some)
        if number:
            context.destroy_communicator(number)


    run(main)
"""


def test_communicators_of_some_ranks_have_one_of_nccls_each(cluster: Cluster) -> None:
    start(cluster, SOME_RANKS, [2, 2]).expect_success()
