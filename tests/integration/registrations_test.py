"""Tensors that come again with other shapes: what ringd and the library hold is what lives."""

from __future__ import annotations

import json

from tests.integration.cluster import Cluster

# A hundred times as many would not fit.
BYTES_PER_USER = 1 << 20

ANEW = """
    import resource

    import ringd
    import ringd.torch as hvd
    import torch
    from ringd.torch import job as jobs

    torch.set_num_threads(1)
    hvd.init()
    job = jobs.current()


    def described(extent):
        return ringd.TensorSpec(
            "anew", ringd.CollectiveKind.ALLREDUCE, ringd.DataType.FLOAT32, shape=(extent,)
        )


    def resident_kib():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


    last = []
    for start in range(0, 70_000, 500):
        numbers = job.context.register([described(extent) for extent in range(start, start + 500)])
        if last:
            job.context.unregister(last)
            gone = last[0]
        last = numbers
        if start == 10_000:
            before = resident_kib()
    assert resident_kib() - before < 8 * 1024, (before, resident_kib())
    try:
        job.context.submit(gone, 0, 0)
    except ringd.NotFoundError as error:
        print("told:", error, flush=True)
    job.context.unregister(last)

    # The same by PyTorch's way, which gives back by itself.
    for extent in range(1, 3_000):
        tensor = torch.full((extent % 1000 + 1,), 1.0)
        hvd.allreduce_(tensor, op=hvd.Sum, name="x")
        assert tensor.sum().item() == extent % 1000 + 1
    print("done", flush=True)
    hvd.shutdown()
"""

IN_USE = """
    import time

    import ringd
    import ringd.torch as hvd
    import torch
    from ringd.torch import job as jobs

    hvd.init()
    context = jobs.current().context
    spec = ringd.TensorSpec("held", ringd.CollectiveKind.ALLREDUCE, ringd.DataType.FLOAT32, shape=(1000,))
    (number,) = context.register([spec])
    tensor = torch.ones(1000)
    if hvd.rank() == 0:
        operation = context.submit(number, tensor.data_ptr(), tensor.data_ptr())
        try:
            context.unregister([number])
        except ringd.FailedPreconditionError as error:
            print("told:", error, flush=True)
        hvd.barrier()
        context.wait(operation)
    else:
        hvd.barrier()
        context.wait(context.submit(number, tensor.data_ptr(), tensor.data_ptr()))
    assert tensor.sum().item() == 2000
    context.unregister([number])
    (again,) = context.register([spec])
    assert again != number
    context.wait(context.submit(again, tensor.data_ptr(), tensor.data_ptr()))
    assert tensor.sum().item() == 4000
    hvd.barrier()
    hvd.shutdown()
"""

NAMES_THAT_DO_NOT_RETURN = """
    import ringd
    import ringd.torch as hvd
    import torch
    from ringd.torch import job as jobs

    torch.set_num_threads(1)
    hvd.init()
    job = jobs.current()
    context = job.context
    often = torch.ones(1000)
    for step in range(0, 70_000, 1_000):
        numbers = context.register(
            [
                ringd.TensorSpec(
                    f"step.{n}", ringd.CollectiveKind.ALLREDUCE, ringd.DataType.FLOAT32, shape=(1_000,)
                )
                for n in range(step, step + 1_000)
            ]
        )
        # Of each thousand, some: a number that was never used is given away as well.
        for number in numbers[::50]:
            tensor = torch.full((1_000,), step + 1.0)
            context.wait(context.submit(number, tensor.data_ptr(), tensor.data_ptr()))
            assert (tensor == hvd.size() * (step + 1.0)).all()
        context.unregister(numbers)
        hvd.allreduce_(often, op=hvd.Average, name="often")
        assert (often == 1).all()

    # The same by PyTorch's way, which gives back by itself.
    job.LOOK, job._look_at = 128, 256
    for step in range(1_000):
        loss = hvd.allreduce(torch.tensor([1.0 + step]), op=hvd.Sum, name=f"loss.{step}")
        assert loss.item() == hvd.size() * (1.0 + step)
    assert len(job._registrations) < 512
    print("done", flush=True)
    hvd.shutdown()
"""


def resident_bytes(cluster: Cluster) -> int:
    result = cluster.ringctl("status", "--json")
    assert result.returncode == 0, result.stderr
    return int(json.loads(result.stdout)["resident_bytes"])


def test_one_name_described_70_000_times_stays_within_count_and_memory(cluster: Cluster) -> None:
    cluster.start_nodes(1, registration_bytes_per_user=BYTES_PER_USER)
    before = resident_bytes(cluster)
    job = cluster.start_job(ANEW, ranks_per_node=[1])
    job.expect_success()
    assert "told: there is no registration" in job.ranks[0].output
    assert resident_bytes(cluster) - before < 32 << 20


def test_a_number_in_use_is_not_given_back(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    for ranks in ([2], [1, 1]):
        job = cluster.start_job(IN_USE, ranks_per_node=ranks)
        job.expect_success()
        assert "(tensor 'held') is in use" in job.ranks[0].output


def test_more_names_than_a_job_may_have_at_once_come_one_after_the_other(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    for ranks in ([2], [1, 1]):
        job = cluster.start_job(NAMES_THAT_DO_NOT_RETURN, ranks_per_node=ranks)
        job.expect_success()
