"""Tensors in device memory, from the trainers' streams through two engines and back: on emulated
GPUs."""

from __future__ import annotations

import json

import pytest

from tests.integration.cluster import Cluster
from tests.integration.emulated_gpus import start_on_gpus

pytestmark = pytest.mark.usefixtures("way")

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
    start_on_gpus(cluster, BROADCASTS, layout).expect_success()


def test_two_trainers_reduce_tensors_on_their_gpus_over_two_engines(cluster: Cluster) -> None:
    job = start_on_gpus(cluster, SUMS, [1, 1])
    job.expect_success()
    job.expect_output("sums are right")


@pytest.mark.parametrize("layout", [[2, 1, 2], [3], [1]], ids=str)
def test_several_ranks_of_a_node_have_a_gpu_each(cluster: Cluster, layout: list[int]) -> None:
    job = start_on_gpus(cluster, SUMS, layout)
    job.expect_success()


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
    start_on_gpus(cluster, COMMUNICATORS, layout).expect_success()


def test_the_trace_of_a_job_on_one_node_names_what_is_on_gpus(cluster: Cluster) -> None:
    program = """
        import time

        import ringd
        from device_trainer import DeviceTrainer
        from trainer import run, say


        def main():
            trainer = DeviceTrainer()
            context = trainer.context
            tensor = trainer.tensor("on a GPU", [1.0] * 4096)
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
    job = start_on_gpus(cluster, program, [2])
    job.expect_output('"reduced"')
    trace = cluster.folder / "trace.json"
    cluster.ringctl("trace", "--job", job.job_id, "--seconds", "1", "--out", str(trace))
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"on the host", "on a GPU"} <= names, sorted(names)


@pytest.mark.parametrize("way", ["engine"], indirect=True)
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
    start_on_gpus(cluster, program, [1, 1]).expect_success()


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
    start_on_gpus(cluster, MANY, [1, 1]).expect_success()


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
    start_on_gpus(cluster, SOME_RANKS, [2, 2]).expect_success()
