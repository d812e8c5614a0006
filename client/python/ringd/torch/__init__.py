"""ringd for PyTorch, with Horovod's interface.

    import ringd.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Start the program with ``ringctl run -n 4 -- python train.py``, torchrun, mpirun or srun.

    init, shutdown, is_initialized          a place in the job, from the launcher's environment
    rank, size, local_rank, local_size, cross_rank, cross_size, is_homogeneous
                                            where it is
    DistributedOptimizer                    steps with the gradients of all ranks
    broadcast_parameters, broadcast_optimizer_state, broadcast_object
                                            give all ranks what one has
    ProcessSet, global_process_set, add_process_set, remove_process_set
                                            some of the ranks, for process_set=
    SyncBatchNorm                           batch normalization over the batches of all ranks
    allreduce, broadcast, barrier           on tensors; also ..._ (in place), ..._async, grouped_...
    poll, synchronize                       the end of what was begun with ..._async
    Average, Sum, Min, Max, Product         op=
    Compression                             compression=
    empty                                   a tensor that is reduced without a copy

CUDA tensors are taken, too; operations on them have the order of streams, and the host mostly does
not wait. Every function may be called from any thread. Operations that have names may come in any
order on the ranks. Unnamed ones are matched by their order.

Errors are ``ringd.RingdError``, of arguments also ``ValueError`` and ``TypeError``; see
``help("ringd")``.
"""

from typing import TYPE_CHECKING

from ringd.torch import horovod_interface
from ringd.torch.allreduce import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from ringd.torch.arena import empty
from ringd.torch.broadcast import (
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_parameters,
)
from ringd.torch.compression import Compression
from ringd.torch.handle import Handle, poll, synchronize
from ringd.torch.horovod_interface import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from ringd.torch.job import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from ringd.torch.objects import broadcast_object
from ringd.torch.optimizer import DistributedOptimizer
from ringd.torch.optimizer_state import broadcast_optimizer_state
from ringd.torch.process_set import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from ringd.torch.sync_batch_norm import SyncBatchNorm as SyncBatchNorm

# What help(ringd.torch) shows in full. SyncBatchNorm would add all that it inherits; the text above
# names it.
__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Handle",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "empty",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "synchronize",
]

# Not for type checkers: they would take any name for one of ours.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise horovod_interface.missing(name)
