"""Tensors in device memory of the trainers' own, which ringd stages in its slab: on emulated
GPUs."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.emulated_gpus import give_gpus, start_on_gpus
from tests.integration.failures.events import expect_words, parse_events, wait_for_event

SUMS = """
    import array

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        rank, size, context, driver = trainer.rank, trainer.size, trainer.context, trainer.driver
        other_stream = driver.new_stream()

        # A step, as a training loop has it: what comes out is there when the stream goes on.
        tensors = [
            trainer.tensor(f"gradient {i}", [float(i + rank)] * (100 + i), in_slab=False)
            for i in range(5)
        ]
        for step in range(6):
            stream = trainer.stream if step % 2 == 0 else other_stream
            operations = [tensor.all_reduce(stream) for tensor in tensors]
            for i, tensor in enumerate(tensors):
                waits = stream if i < 3 else driver.stream
                context.stream_wait(operations[i], waits)
                context.stream_wait(operations[i], other_stream)
                expected = [float(sum(i + r for r in range(size)))] * (100 + i)
                assert tensor.read(waits) == expected, (step, i)
                assert tensor.read(other_stream) == expected, (step, i)
            context.wait_all(operations)

        # The host's wait alone: one by one, and all together.
        for step in range(3):
            context.wait(tensors[0].all_reduce())
            assert tensors[0].read(other_stream) == [float(sum(range(size)))] * 100
            operations = [tensor.all_reduce() for tensor in tensors]
            context.wait_all(operations)
            for i, tensor in enumerate(tensors):
                assert tensor.read(other_stream)[0] == float(sum(i + r for r in range(size)))

        # Source and destination in different memory, all four ways.
        inside = [context.device_alloc(40) for _ in range(2)]
        outside = [driver.allocate(40) for _ in range(2)]
        (number,) = context.register(
            [ringd.TensorSpec("apart", shape=(10,), memory=ringd.Memory.DEVICE)]
        )
        for fetched in (True, False):
            for source in (inside[0], outside[0]):
                for target in (inside[1], outside[1]):
                    driver.write(source, array.array("f", [float(rank)] * 10), trainer.stream)
                    operation = context.submit_on_stream(number, source, target, trainer.stream)
                    if fetched:
                        context.stream_wait(operation, other_stream)
                    else:
                        context.wait(operation)
                    result = array.array("f", bytes(40))
                    driver.read(target, result, other_stream)
                    assert result.tolist() == [float(sum(range(size)))] * 10
                    driver.read(source, result, other_stream)
                    assert result.tolist() == [float(rank)] * 10
                    if fetched:
                        context.wait(operation)

        # One rank's for all; the root may have it in two places.
        kind = ringd.CollectiveKind.BROADCAST
        spec = {"kind": kind, "shape": (10,), "root_rank": 1, "memory": ringd.Memory.DEVICE}
        (number,) = context.register([ringd.TensorSpec("given", **spec)])
        for fetched in (True, False):
            for source in (inside[0], outside[0]):
                for target in (source, inside[1], outside[1]):
                    for address, value in ((target, -1.0), (source, float(rank))):
                        driver.write(address, array.array("f", [value] * 10), trainer.stream)
                    operation = context.submit_on_stream(number, source, target, trainer.stream)
                    if fetched:
                        context.stream_wait(operation, other_stream)
                    context.wait(operation)
                    result = array.array("f", bytes(40))
                    driver.read(target, result, other_stream)
                    assert result.tolist() == [1.0] * 10, (source, target, fetched)

        # One of no elements, wherever it is.
        (nothing,) = context.register(
            [ringd.TensorSpec("nothing", shape=(0,), memory=ringd.Memory.DEVICE)]
        )
        context.wait(context.submit_on_stream(nothing, 0, 0, trainer.stream))


    run(main)
"""


@pytest.mark.parametrize("ranks_per_node", [[1, 1], [2, 1], [2]])
def test_tensors_anywhere_in_a_gpus_memory_are_reduced(cluster: Cluster, ranks_per_node: list[int]) -> None:
    start_on_gpus(cluster, SUMS, ranks_per_node).expect_success()


MANY = """
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        # Blocks of the slab are used again and again, by two streams.
        trainer = DeviceTrainer()
        context, driver = trainer.context, trainer.driver
        streams = [trainer.stream, driver.new_stream()]
        tensors = [trainer.tensor(f"gradient {i}", [float(i)] * 100, in_slab=False) for i in range(30)]
        for step in range(10):
            operations = [tensor.all_reduce(streams[(i + step) % 2]) for i, tensor in enumerate(tensors)]
            for i in range(30):
                context.stream_wait(operations[i], streams[(i + step + 1) % 2])
            context.wait_all(operations)
            # The host has waited for the operations, and not for the streams.
            if step % 3 == 2:
                for i, tensor in enumerate(tensors):
                    assert tensor.read(streams[(i + step + 1) % 2]) == [2.0 * i] * 100, (step, i)
            else:
                for stream in streams:
                    driver.synchronize(stream)


    run(main)
"""


def test_blocks_are_used_again_in_the_order_of_the_streams(cluster: Cluster) -> None:
    start_on_gpus(cluster, MANY, [1, 1], cuda_max_delay_us=1000).expect_success()


MISUSES = """
    import array

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer(slab_bytes=1 << 20)
        context, stream, driver = trainer.context, trainer.stream, trainer.driver
        (number,) = context.register(
            [ringd.TensorSpec("gradient", shape=(100,), memory=ringd.Memory.DEVICE)]
        )
        ours = driver.allocate(400)

        def refused(error, words, source, destination, registration=number):
            try:
                context.submit_on_stream(registration, source, destination, stream)
            except error as caught:
                for word in ["'gradient'" if registration == number else "'huge'", *words]:
                    assert word in str(caught), (word, str(caught))
            else:
                raise AssertionError(f"{words}: nothing was refused")

        invalid = ringd.InvalidArgumentError
        of_host = array.array("f", [1.0] * 100)
        refused(invalid, ["its source", "the host's, or freed"], of_host.buffer_info()[0], ours)
        refused(invalid, ["its destination", "the host's, or freed"], ours, of_host.buffer_info()[0])
        freed = driver.allocate(400)
        driver.free(freed)
        refused(invalid, ["its source", "freed"], freed, ours)
        refused(invalid, ["first 396 of 400 bytes"], ours + 4, ours + 4)
        refused(invalid, ["overlap"], ours, ours + 4)
        driver.use(1 - context.place.local_rank)
        of_other = driver.allocate(400)
        driver.use(context.place.local_rank)
        refused(invalid, ["GPU 1, and this context has opened GPU 0"], of_other, of_other)
        # More than the slab has.
        (huge,) = context.register(
            [ringd.TensorSpec("huge", shape=(1 << 20,), memory=ringd.Memory.DEVICE)]
        )
        large = driver.allocate(4 << 20)
        words = [str(4 << 20), "slab_bytes"]
        refused(ringd.ResourceExhaustedError, words, large, large, huge)
        # The job goes on.
        driver.write(ours, of_host, stream)
        context.wait(context.submit_on_stream(number, ours, ours, stream))
        result = array.array("f", bytes(400))
        driver.read(ours, result, stream)
        assert result.tolist() == [2.0] * 100


    run(main)
"""


def test_what_is_no_memory_of_the_gpu_is_refused_and_the_job_goes_on(cluster: Cluster) -> None:
    start_on_gpus(cluster, MISUSES, [1, 1], cuda_devices=2).expect_success()


# A tensor that the ranks describe differently fails alone; a job that fails lets streams go on.
FAILS = """
    import time

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error


    def main():
        trainer = DeviceTrainer()
        context, stream = trainer.context, trainer.stream
        shape = 4 + trainer.rank
        differs = trainer.tensor("differs", [1.0] * shape, in_slab=False)
        for waits in (True, False):
            operation = differs.all_reduce()
            if waits:
                context.stream_wait(operation, stream)
            try:
                context.wait(operation)
            except ringd.InvalidArgumentError as error:
                assert "'differs'" in str(error)
            else:
                raise AssertionError("nothing was refused")
            # The stream goes on.
            differs.read()
        tensor = trainer.tensor("gradient", [1.0] * 4, in_slab=False)
        context.wait(tensor.all_reduce())
        assert tensor.read() == [2.0] * 4
        if trainer.rank == 1:
            time.sleep(60)
        other = trainer.tensor("other", [1.0] * 4, in_slab=False).all_reduce()
        fetched = tensor.all_reduce()
        context.stream_wait(fetched, stream)
        say("in flight")
        for operation in (fetched, other):
            try:
                context.wait(operation)
            except ringd.RingdError as error:
                say_error(error, "lost")
        tensor.read()
        say("released")


    run(main)
"""


def test_a_failure_lets_streams_go_on_and_is_told_by_the_wait(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.reap_as_launchers_do()
    cluster.start_nodes(2)
    job = cluster.start_job(FAILS, [1, 1], environment=environment)
    survivor, victim = job.ranks
    wait_for_event(survivor, "in flight")
    victim.process.kill()
    expect_words(wait_for_event(survivor, "lost")["text"], "rank 1", "signal 9")
    wait_for_event(survivor, "released")
    assert len(parse_events(survivor.output, "lost")) == 2


CLOSES = """
    import threading
    import time

    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 1000, in_slab=False)
        operation = tensor.all_reduce()
        busy = trainer.driver.new_stream()
        let_go = trainer.driver.hold_up(busy)
        trainer.context.stream_wait(operation, busy)
        trainer.context.wait(operation)
        # The copy is still to come: the slab stays until it has run.
        begin = time.monotonic()
        threading.Timer(0.5, let_go).start()
        trainer.context.close()
        del trainer.context
        assert time.monotonic() - begin > 0.3
        assert tensor.read(busy) == [2.0] * 1000


    run(main)
"""


def test_a_context_that_closes_waits_for_copies_out_of_its_slab(cluster: Cluster) -> None:
    start_on_gpus(cluster, CLOSES, [1, 1]).expect_success()
