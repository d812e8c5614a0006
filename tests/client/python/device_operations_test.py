"""ringd.torch and tensors on GPUs that are none."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import ringd
import torch
from ringd import _ringd
from ringd.torch import Compression, allreduce_async_, cuda_streams, device_operations
from ringd.torch import handle as torch_handle
from ringd.torch import job as job_module
from ringd.torch.device_operations import DeviceOperations
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Communicator, Job
from ringd.types import DataType, Memory, ReduceOp, TensorSpec

from tests.client.python.fake_gpus import FakeContext, Streams


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    monkeypatch.delenv("RINGD_SLAB", raising=False)
    return Streams(monkeypatch)


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def job(context: FakeContext, monkeypatch: pytest.MonkeyPatch) -> Job:
    made: Any = context
    job = Job(made)
    monkeypatch.setattr(job_module, "_job", job)
    return job


def spec(**changes: Any) -> TensorSpec:
    described: dict[str, Any] = {"name": "gradient", "shape": (2,)} | changes
    return TensorSpec(**described)


def test_what_pytorch_says_of_a_tensor_of_the_host() -> None:
    tensor = torch.ones(3)
    assert not cuda_streams.is_on_gpu(tensor)
    assert cuda_streams.address(tensor) == tensor.data_ptr()
    copy = cuda_streams.copy_to_host(tensor)
    assert copy.tolist() == tensor.tolist()
    assert copy.data_ptr() != tensor.data_ptr()


def test_pytorch_has_what_only_one_with_cuda_can_show() -> None:
    for owner, name in (
        (torch.cuda, "current_stream"),
        (torch.cuda, "device"),
        (torch.cuda, "is_current_stream_capturing"),
        (torch.Tensor, "get_device"),
        (torch.Tensor, "record_stream"),
    ):
        assert callable(getattr(owner, name))


def test_a_cuda_tensor_is_reduced_on_the_device_and_in_the_order_of_streams(
    job: Job, context: FakeContext, streams: Streams
) -> None:
    tensor = streams.put(torch.ones(2), gpu=3)
    handle = allreduce_async_(tensor, name="x", op=ReduceOp.SUM)
    address = tensor.data_ptr()
    assert context.opened == [(3, device_operations.DEFAULT_SLAB_BYTES)]
    assert context.registered[-1].memory == Memory.DEVICE
    assert context.calls == [("device", 1, address, address, 0x77)]
    assert not torch_handle.poll(handle)
    streams.current = 0x99
    version = tensor._version
    assert torch_handle.synchronize(handle) is tensor
    # The host has not waited for it.
    assert context.calls[1:] == [("stream_wait", 1, 0x99)]
    assert tensor._version == version + 1
    assert len(streams.kept) == 2
    assert torch_handle.synchronize(handle) is tensor
    # The next one takes it out, once it has ended.
    context.ended.add(1)
    allreduce_async_(tensor, name="x", op=ReduceOp.SUM)
    assert ("wait", 1) in context.calls


def test_a_tensor_of_the_host_opens_no_gpu(job: Job, context: FakeContext, streams: Streams) -> None:
    allreduce_async_(torch.ones(2), name="x")
    assert context.opened == []
    assert context.registered[0].memory == Memory.HOST
    assert context.calls == [("host", 1)]


@pytest.mark.parametrize("data_type", [DataType.BOOL, DataType.INT16, DataType.UINT16])
def test_what_nccl_can_not_reduce_is_the_library_s_to_carry(
    context: FakeContext, streams: Streams, data_type: DataType
) -> None:
    made: Any = context
    device = DeviceOperations(made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        placed = device.placed(spec(data_type=data_type), streams.put(torch.ones(2)))
    assert placed.memory == Memory.DEVICE


def test_by_the_host_a_tensor_is_copied_and_gets_its_result(
    job: Job, context: FakeContext, streams: Streams
) -> None:
    context.refusal = ringd.NotFoundError("there is no libcuda.so.1")
    tensor = streams.put(torch.ones(2))
    with pytest.warns(UserWarning, match="'allreduce.x' is on a GPU, and goes by a copy to host memory"):
        handle = allreduce_async_(tensor, name="x", op=ReduceOp.SUM)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told once
        allreduce_async_(streams.put(torch.ones(2)), name="y", op=ReduceOp.SUM)
    assert context.calls == [("host", 1), ("host", 2)]
    assert streams.copied == 2
    handle._kept[0].fill_(7)  # ringd's result
    assert torch_handle.synchronize(handle).tolist() == [7, 7]
    assert tensor.tolist() == [7, 7]


@pytest.mark.parametrize("error", [ringd.FailedPreconditionError, ringd.NotFoundError])
def test_without_a_gpu_for_ringd_tensors_go_by_the_host(
    context: FakeContext, streams: Streams, error: type[ringd.RingdError]
) -> None:
    context.refusal = error("there is no libnccl.so.2")
    made: Any = context
    device = DeviceOperations(made)
    with pytest.warns(UserWarning, match="there is no libnccl"):
        assert device.placed(spec(), streams.put(torch.ones(2))).memory == Memory.HOST


def test_a_rank_alone_is_told_nothing(streams: Streams) -> None:
    alone: Any = FakeContext(size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DeviceOperations(alone).placed(spec(), streams.put(torch.ones(2))).memory == Memory.HOST
    assert alone.opened == []


def test_what_is_wrong_is_an_error_and_no_copy(
    context: FakeContext, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Any = context
    tensor = streams.put(torch.ones(2))
    context.refusal = ringd.ResourceExhaustedError("GPU-1 has no 512 MiB")
    with pytest.raises(ringd.ResourceExhaustedError, match="RINGD_SLAB"):
        DeviceOperations(made).placed(spec(), tensor)
    context.refusal = None
    device = DeviceOperations(made)
    device.placed(spec(), tensor)
    with pytest.raises(ringd.InvalidArgumentError, match="on GPU 1, and this rank has used GPU 0"):
        device.placed(spec(), streams.put(torch.ones(2), gpu=1))
    streams.capturing = True
    with pytest.raises(ringd.FailedPreconditionError, match="gradient: .* CUDA graph"):
        device.placed(spec(), tensor)
    monkeypatch.setenv("RINGD_SLAB", "much")
    streams.capturing = False
    with pytest.raises(ringd.InvalidArgumentError, match="'much'"):
        DeviceOperations(made).placed(spec(), tensor)


def test_a_failure_that_comes_late_is_raised_by_what_comes_next(
    job: Job, context: FakeContext, streams: Streams
) -> None:
    tensor = streams.put(torch.ones(2))
    torch_handle.synchronize(allreduce_async_(tensor, name="x"))
    context.ended.add(1)
    context.failed[1] = ringd.JobFailedError("rank 1 was killed")
    with pytest.raises(ringd.JobFailedError, match="rank 1 was killed"):
        allreduce_async_(tensor, name="y")
    # Once.
    allreduce_async_(tensor, name="y")


def test_a_failure_that_is_known_is_raised_by_synchronize(
    job: Job, context: FakeContext, streams: Streams
) -> None:
    handle = allreduce_async_(streams.put(torch.ones(2)), name="x")
    context.ended.add(1)
    context.failed[1] = ringd.InvalidArgumentError("tensor 'allreduce.x': shapes differ")
    for _ in range(2):
        with pytest.raises(ringd.InvalidArgumentError, match="shapes differ"):
            torch_handle.synchronize(handle)
    assert job.in_flight == set()


def test_where_the_slab_is_full_what_has_ended_makes_room(
    job: Job, context: FakeContext, streams: Streams
) -> None:
    context.room = 2
    handles = []
    for i in range(6):
        context.ended = set(context.in_flight)
        handles.append(allreduce_async_(streams.put(torch.ones(2)), name=f"x{i}"))
    assert len(context.in_flight) <= 2
    # They were taken out before anybody waited for them, and how they ended is known yet.
    context.failed.update(dict.fromkeys(context.in_flight, ringd.InvalidArgumentError("differs")))
    context.ended = set(context.in_flight)
    for handle in handles[:4]:
        assert torch_handle.poll(handle)
        torch_handle.synchronize(handle)
    with pytest.raises(ringd.InvalidArgumentError, match="differs"):
        torch_handle.synchronize(handles[-1])


def test_a_tensor_that_the_slab_never_holds_is_refused_with_the_setting(
    job: Job, context: FakeContext, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = streams.put(torch.ones(2))
    context.room = 0
    with pytest.raises(ringd.ResourceExhaustedError, match="RINGD_SLAB"):
        allreduce_async_(tensor, name="x")
    # Nor does it wait without end for one that others hold up.
    monkeypatch.setattr(device_operations, "_ROOM_PATIENCE_S", 0.05)
    context.room = 1
    allreduce_async_(tensor, name="x")
    with pytest.raises(ringd.ResourceExhaustedError, match="RINGD_SLAB"):
        allreduce_async_(tensor, name="y")


def test_finish_waits_for_what_streams_wait_for(job: Job, context: FakeContext, streams: Streams) -> None:
    tensor = streams.put(torch.ones(2))
    torch_handle.synchronize(allreduce_async_(tensor, name="x"))
    allreduce_async_(tensor, name="y")
    job.device.finish(communicator=4)
    assert ("wait", 1) not in context.calls
    job.device.finish()
    assert ("wait", 1) in context.calls
    assert len(context.in_flight) == 1


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, 512 << 20),
        ("", 512 << 20),
        ("4096", 4096),
        ("64KiB", 64 << 10),
        (" 3 MiB ", 3 << 20),
        ("2GiB", 2 << 30),
    ],
)
def test_the_slab_is_as_large_as_the_setting_says(setting: str | None, expected: int) -> None:
    assert device_operations.slab_bytes(setting) == expected


@pytest.mark.parametrize("setting", ["0", "-1", "1.5GiB", "2GB", "x"])
def test_a_wrong_setting_is_named(setting: str) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="RINGD_SLAB"):
        device_operations.slab_bytes(setting)


def test_a_gradient_that_the_host_can_not_read_is_not_compared() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    hook = _ringd.GradientHook(parameter, lambda _: None, {}, 1)
    result = torch.zeros(3)
    for on_host, changed in ((True, True), (False, False)):
        gradient = parameter.grad = torch.ones(3)
        hook.note(7, gradient, result, gradient, on_host)
        gradient.data[0] = 5.0
        assert hook.was_changed() is changed
        hook.forget()
    # A change that PyTorch counts is seen all the same.
    hook.note(7, gradient, result, gradient, False)
    gradient.mul_(2)
    assert hook.was_changed()
    hook.forget()


def test_an_operation_that_an_interrupted_wait_has_taken_is_looked_for_no_more(
    job: Job, context: FakeContext, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = streams.put(torch.ones(2))
    operation = job.device.submit(1, tensor, tensor, 0)
    job.device.wait(operation)
    wait = context.wait

    def interrupted(operation: int, timeout_ms: int = -1) -> None:
        wait(operation, timeout_ms)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(context, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.device.finish()
    job.device.submit(1, tensor, tensor, 0)
    job.device.finish()


def test_a_failure_that_nobody_has_heard_of_is_not_lost_with_an_interrupt(
    job: Job, context: FakeContext, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = streams.put(torch.ones(2))
    operation = job.device.submit(1, tensor, tensor, 0)
    context.in_flight.remove(operation)  # a wait whose failure an interrupt has taken the place of
    context.room = 0
    with monkeypatch.context() as patch:
        patch.setattr(device_operations, "_ROOM_PATIENCE_S", 0.0)
        with pytest.raises(ringd.ResourceExhaustedError):
            job.device.submit(1, tensor, tensor, 0)
    job.device._make_room()
    with pytest.raises(ringd.NotFoundError):
        job.device.wait(operation)


def test_gradients_that_autograd_gives_one_memory_are_not_reduced_there(
    job: Job, context: FakeContext, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_streams, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(cuda_streams, "ordinal", lambda tensor: 0)
    pending: dict[GradientSlot, None] = {}
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    for number, parameter in enumerate(parameters):
        slot = GradientSlot(parameter, lambda _: None, pending, 1, Compression.none)
        slot.describe(job, Communicator(0, 2), f"slot.{number}", ReduceOp.SUM, 1.0, 1.0)
        parameter.register_post_accumulate_grad_hook(lambda _, slot=slot: slot.submit(accumulated=True))
    first, second, alone = parameters
    ((first.unsqueeze(0) + second.unsqueeze(0)) * 3.0 + (alone * alone)).sum().backward()
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    assert len(grads) == 3
    places = {(source, destination) for _, _, source, destination, _ in context.calls}
    shared = grads[0].data_ptr()
    assert grads[1].data_ptr() == shared
    destinations = [destination for source, destination in places if source == shared]
    assert len(destinations) == 2
    assert shared not in destinations
    assert (grads[2].data_ptr(), grads[2].data_ptr()) in places
