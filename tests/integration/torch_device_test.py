"""ringd.torch with tensors on GPUs: PyTorch's own functions and the engines are real, the GPUs and
what PyTorch knows of them (`emulated_cuda`) are not."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus
from tests.integration.failures.events import expect_words, wait_for_event


def start(cluster: Cluster, source: str, ranks_per_node: list[int], **variables: str) -> JobRun:
    environment = give_gpus(cluster, cuda_devices=max(ranks_per_node))
    cluster.start_nodes(len(ranks_per_node))
    return cluster.start_job(source, ranks_per_node, environment=environment | variables)


FUNCTIONS = """
    import os
    import warnings

    import ringd
    import ringd.torch as hvd
    import torch
    from emulated_cuda import EmulatedCuda
    from ringd.torch.job import current
    from ringd.types import Memory


    def places(name):
        return {
            spec.memory for spec in current()._registrations if spec.name == name
        }


    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    total = size * (size - 1) / 2
    cuda = EmulatedCuda(hvd.local_rank(), eager=False)
    device = Memory.DEVICE if os.environ["EXPECTED"] == "device" else Memory.HOST

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        # In place; the host does not wait.
        for step in range(5):
            tensor = cuda.tensor([float(rank)] * 1000)
            assert hvd.allreduce_(tensor, name="in place", op=hvd.Sum) is tensor
            cuda.synchronize()
            assert tensor.tolist() == [total] * 1000
        assert places("allreduce.in place") == {device}

        # Several in flight, ended in another order; a result of its own.
        sources = [cuda.tensor([float(rank + i)] * (10 + i)) for i in range(8)]
        handles = [hvd.allreduce_async(source, name=f"async {i}") for i, source in enumerate(sources)]
        results = [hvd.synchronize(handle) for handle in reversed(handles)][::-1]
        cuda.synchronize()
        for i, (source, result) in enumerate(zip(sources, results, strict=True)):
            assert source.tolist() == [float(rank + i)] * (10 + i)
            assert result.tolist() == [total / size + i] * (10 + i), (i, result)
            assert hvd.poll(handles[i])

        # What is not dense, compressed, grouped.
        cuda.eager = True  # the result is written back by PyTorch
        matrix = cuda.tensor([[float(rank)] * 6] * 4)
        hvd.allreduce_(matrix[:, ::2], name="strided", op=hvd.Sum)
        assert matrix.tolist() == [[total, float(rank)] * 3] * 4
        halved = hvd.allreduce(
            cuda.tensor([1.0, 3.0]), name="compressed", op=hvd.Sum, compression=hvd.Compression.fp16
        )
        assert halved.tolist() == [float(size), 3.0 * size]
        assert places("allreduce.compressed") == {device}
        cuda.eager = False
        first, second = hvd.grouped_allreduce(
            [cuda.tensor([1.0]), cuda.tensor([2.0, 2.0])], name="group", op=hvd.Sum
        )
        cuda.synchronize()
        assert (first.tolist(), second.tolist()) == ([float(size)], [2.0 * size] * 2)

        # One rank's for all, and of any type.
        for step in range(2):
            given = cuda.tensor([float(rank)] * 3)
            hvd.broadcast_(given, 1, name="given")
            flags = hvd.broadcast(cuda.tensor([rank == 0, rank == 1], torch.bool), 0, name="flags")
            cuda.synchronize()
            assert given.tolist() == [1.0] * 3
            assert flags.tolist() == [True, False], flags
            assert cuda._find(flags) is not None
        assert places("broadcast.given") == places("broadcast.flags") == {device}

        # NCCL can't reduce such a type: libringd takes its host path.
        for step in range(2):
            small = cuda.tensor([rank + 1], torch.int16)
            hvd.allreduce_(small, name="int16", op=hvd.Max)
            cuda.synchronize()
            assert small.tolist() == [size]
        assert places("allreduce.int16") == {device}
        assert hvd.allreduce(torch.ones(3), name="of the host").tolist() == [1.0] * 3

        # Ranks that disagree hear so, with this operation or with the next one.
        odd = cuda.tensor([1.0] * (4 + rank % 2))
        try:
            hvd.allreduce_(odd, name="odd")
            cuda.synchronize()
            while True:
                hvd.allreduce_(cuda.tensor([1.0]), name="even", op=hvd.Sum)
        except ringd.InvalidArgumentError as error:
            assert "allreduce.odd" in str(error)
    texts = [str(warning.message) for warning in told if "to host memory" in str(warning.message)]
    assert len(texts) == (device == Memory.HOST), texts
    for text in texts:
        assert "'allreduce.in place'" in text and "no-such-nccl" in text, texts
    # What a stream waits for is there after shutdown.
    last = cuda.tensor([float(rank)])
    hvd.allreduce_(last, name="last", op=hvd.Sum)
    hvd.shutdown()
    cuda.synchronize()
    assert last.tolist() == [total]
"""


@pytest.mark.parametrize("ranks_per_node", [[1, 1], [2, 1], [2]])
def test_functions_reduce_cuda_tensors_on_their_gpus(cluster: Cluster, ranks_per_node: list[int]) -> None:
    start(cluster, FUNCTIONS, ranks_per_node, EXPECTED="device").expect_success()


OPTIMIZER = """
    import os

    import ringd.torch as hvd
    import torch
    from emulated_cuda import EmulatedCuda
    from ringd.types import Memory
    from torch import nn

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    cuda = EmulatedCuda(hvd.local_rank())


    def make():
        torch.manual_seed(3)
        layers = [nn.Linear(6, 500), nn.Tanh(), nn.Linear(500, 600), nn.Linear(600, 500)]
        return nn.Sequential(*layers, nn.Linear(500, 2))


    def batch(step):
        generator = torch.Generator().manual_seed(step)
        return torch.randn(4 * size, 6, generator=generator), torch.randn(4 * size, 2, generator=generator)


    def train(model, optimizer, steps, mine, clip):
        for step in range(steps):
            inputs, targets = (part[mine] for part in batch(step))
            optimizer.zero_grad(set_to_none=False)
            nn.functional.mse_loss(model(inputs), targets).backward()
            if clip:
                if hasattr(optimizer, "skip_synchronize"):
                    optimizer.synchronize()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if clip and hasattr(optimizer, "skip_synchronize"):
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()


    for compression, clip, tolerance in (
        (hvd.Compression.none, False, 1e-5),
        (hvd.Compression.none, True, 1e-5),
        (hvd.Compression.fp16, False, 1e-2),
    ):
        alone = make()
        train(alone, torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9), 4, slice(None), clip)
        model = cuda.move(make())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(rank)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
            named_parameters=model.named_parameters(),
            compression=compression,
        )
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        mine = slice(rank * 4, (rank + 1) * 4)
        train(model, optimizer, 4, mine, clip)
        cuda.synchronize()
        for name, parameter in model.named_parameters():
            expected = alone.get_parameter(name)
            assert torch.allclose(parameter, expected, rtol=tolerance, atol=tolerance), (compression, name)
            # It has stayed where it was.
            assert cuda._find(parameter.grad) is not None or compression is not hvd.Compression.none
        from ringd.torch.job import current

        memory = Memory.DEVICE if os.environ["EXPECTED"] == "device" else Memory.HOST
        described = [spec for spec in current()._registrations if spec.name == "gradient.0.weight"]
        assert all(spec.memory == memory for spec in described), described
        del optimizer
    assert cuda.kept > 0 or memory == Memory.HOST
    hvd.shutdown()
"""


@pytest.mark.parametrize("ranks_per_node", [[1, 1], [2, 1]])
def test_an_optimizer_reduces_gradients_of_parameters_on_gpus(
    cluster: Cluster, ranks_per_node: list[int]
) -> None:
    # The slab, which is rounded up, is smaller than the gradients: they make room for each other.
    start(cluster, OPTIMIZER, ranks_per_node, EXPECTED="device", RINGD_SLAB="64KiB").expect_success()


# By libringd's host path, or, where that is not allowed, by copies of PyTorch's.
@pytest.mark.parametrize(("launcher", "expected"), [("auto", "device"), ("engine", "host")])
def test_without_nccl_cuda_tensors_go_by_the_host(cluster: Cluster, launcher: str, expected: str) -> None:
    environment = give_gpus(cluster) | {"EXPECTED": expected}
    cluster.settings |= {"nccl_library": "no-such-nccl.so", "device_launch": launcher}
    cluster.start_nodes(2)
    for source in (FUNCTIONS, OPTIMIZER):
        cluster.start_job(source, [1, 1], environment=environment).expect_success()


STATES = """
    import ringd.torch as hvd
    import torch
    from emulated_cuda import EmulatedCuda
    from torch import nn

    hvd.init()
    cuda = EmulatedCuda(hvd.local_rank())
    torch.manual_seed(1)
    model = cuda.move(nn.Linear(4, 2))
    # As after loading a checkpoint: only the root has a state. Adam counts steps on the host.
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(adam, model.named_parameters())
    if hvd.rank() == 0:
        for number, parameter in enumerate(model.parameters()):
            ones = torch.ones(parameter.shape)
            optimizer.state[parameter] = {
                "step": torch.tensor(7.0),
                "exp_avg": cuda.tensor((ones * (3 + number)).tolist()),
                "exp_avg_sq": cuda.tensor((ones * 5).tolist()),
            }
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for number, parameter in enumerate(model.parameters()):
        state = optimizer.state[parameter]
        assert float(state["step"]) == 7.0 and cuda._find(state["step"]) is None
        for name, expected in (("exp_avg", 3.0 + number), ("exp_avg_sq", 5.0)):
            assert cuda._find(state[name]) is not None, name
            assert state[name].unique().tolist() == [expected], state[name]
    hvd.shutdown()
"""


def test_ranks_get_the_optimizer_state_that_the_root_has_on_its_gpu(cluster: Cluster) -> None:
    start(cluster, STATES, [1, 1]).expect_success()


MOVES = """
    import ringd.torch as hvd
    import torch
    from emulated_cuda import EmulatedCuda
    from ringd.torch.job import current
    from ringd.types import Memory
    from torch import nn

    hvd.init()
    cuda = EmulatedCuda(hvd.local_rank())
    model = nn.Linear(4, 2, bias=False)
    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters())
    mean = (hvd.size() + 1) / 2


    def train(first, expected):
        for step in range(first, first + 3):
            optimizer.zero_grad(set_to_none=False)
            (model(torch.ones(1, 4)).sum() * (hvd.rank() + 1) * step).backward()
            optimizer.step()
            cuda.synchronize()
            assert model.weight.grad.unique().tolist() == [mean * step], (step, model.weight.grad)
        memories = {spec.memory for spec in current()._registrations if spec.name == "gradient.weight"}
        assert memories == expected, memories


    train(1, {Memory.HOST})
    cuda.move(model)
    train(4, {Memory.HOST, Memory.DEVICE})
    model.weight.data = torch.zeros(2, 4)
    model.weight.grad = torch.zeros(2, 4)
    train(7, {Memory.HOST, Memory.DEVICE})
    hvd.shutdown()
"""


def test_a_model_may_move_to_the_gpu_and_back_after_its_optimizer_was_wrapped(cluster: Cluster) -> None:
    start(cluster, MOVES, [1, 1]).expect_success()


DIES = """
    import time

    import ringd
    import ringd.torch as hvd
    from emulated_cuda import EmulatedCuda
    from trainer import say, say_error

    hvd.init()
    cuda = EmulatedCuda(hvd.local_rank(), eager=False)
    hvd.allreduce_(cuda.tensor([1.0]), name="x")
    if hvd.rank() == 1:
        say("ready")
        time.sleep(60)
    tensor = cuda.tensor([1.0])
    hvd.allreduce_(tensor, name="x")  # the host goes on
    say("in flight")
    for _ in range(2):
        try:
            while True:
                hvd.allreduce_async_(cuda.tensor([1.0]), name="y")
                time.sleep(0.01)
        except ringd.RingdError as error:
            say_error(error, "lost")
    cuda.synchronize()
    say("released")
"""


def test_what_comes_next_raises_the_failure_of_a_job_and_streams_go_on(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.reap_as_launchers_do()
    cluster.start_nodes(2)
    survivor, victim = cluster.start_job(DIES, [1, 1], environment=environment).ranks
    wait_for_event(victim, "ready")
    wait_for_event(survivor, "in flight")
    victim.process.kill()
    lost = wait_for_event(survivor, "lost")
    assert lost["kind"] == "JobFailedError"
    expect_words(lost["text"], "rank 1", "signal 9")
    wait_for_event(survivor, "released")
    assert survivor.wait() == 0
