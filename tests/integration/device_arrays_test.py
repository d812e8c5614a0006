"""Arrays of other libraries on a GPU, by `__cuda_array_interface__` and by DLPack: on emulated
GPUs."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.emulated_gpus import start_on_gpus

ARRAYS = """
    import array

    import ringd
    from device_trainer import CudaArray, DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        context, driver, stream = trainer.context, trainer.driver, trainer.stream
        addresses = [driver.allocate(24) for _ in range(2)]

        def read(address):
            result = array.array("f", bytes(24))
            driver.read(address, result, stream)
            return result.tolist()

        values = array.array("f", [float(trainer.rank + i) for i in range(6)])
        expected = [float(sum(r + i for r in range(trainer.size))) for i in range(6)]
        ours, out = (CudaArray(address, (2, 3), stream=stream) for address in addresses)
        for step in range(3):
            driver.write(addresses[0], values, stream)
            operation = context.device_all_reduce(ours, "gradient", out=out)
            operation.stream_wait()
            assert read(addresses[1]) == expected
            assert read(addresses[0]) == values.tolist()
            operation.wait()
            context.device_all_reduce(ours, "average", op=ringd.ReduceOp.AVERAGE).wait()
            assert read(addresses[0]) == [value / trainer.size for value in expected]
        number = context.device_all_reduce(out, "by number").number
        context.wait_all([number])
        try:
            context.device_all_reduce(CudaArray(values.buffer_info()[0], (6,)), "of the host")
        except ringd.InvalidArgumentError as error:
            assert "'of the host'" in str(error)
        else:
            raise AssertionError("nothing was refused")


    run(main)
"""


@pytest.mark.parametrize("ranks_per_node", [[1, 1], [2, 1]])
def test_arrays_of_other_libraries_are_reduced(cluster: Cluster, ranks_per_node: list[int]) -> None:
    start_on_gpus(cluster, ARRAYS, ranks_per_node).expect_success()


EXPORTED = """
    import array
    import gc

    import ringd
    from device_trainer import DeviceTrainer
    from exported_array import ExportedArray
    from trainer import run


    class Queued(ExportedArray):
        # Written on a stream of its own; whoever asks for it has to wait for that.
        def __init__(self, driver, address, shape, **fields):
            super().__init__(address, shape, **fields)
            self.driver = driver
            self.stream = driver.new_stream()

        def __dlpack__(self, *, stream=None, **options):
            self.driver.wait_for(stream, self.stream)
            return super().__dlpack__(stream=stream, **options)


    def main():
        trainer = DeviceTrainer()
        context, driver, stream = trainer.context, trainer.driver, trainer.stream
        values = array.array("f", [float(trainer.rank + i) for i in range(6)])
        expected = [float(sum(r + i for r in range(trainer.size))) for i in range(6)]
        for versioned in (True, False):
            ours = Queued(driver, driver.allocate(24), (2, 3), versioned=versioned)
            slab = ExportedArray(context.device_alloc(24), (2, 3), versioned=versioned)
            for out in (None, slab):
                for step in range(10):
                    driver.write(ours._address, values, ours.stream)
                    operation = context.device_all_reduce(
                        ours, f"gradient of {versioned} {out is None}", out=out, stream=stream
                    )
                    operation.stream_wait()
                    result = array.array("f", bytes(24))
                    driver.read((out or ours)._address, result, stream)
                    assert result.tolist() == expected, (step, result)
                    operation.wait()
            assert ours.streams == [stream] * 20
            del operation
            gc.collect()
            assert (ours.deleted, slab.deleted) == (20, 10)
        # What is not where it says is seen by whoever asks CUDA.
        try:
            context.device_all_reduce(ExportedArray(values.buffer_info()[0], (6,)), "of the host")
        except ringd.InvalidArgumentError as error:
            assert "'of the host'" in str(error)
        else:
            raise AssertionError("nothing was refused")


    run(main)
"""


def test_arrays_that_export_themselves_are_reduced(cluster: Cluster) -> None:
    start_on_gpus(cluster, EXPORTED, [1, 1]).expect_success()
