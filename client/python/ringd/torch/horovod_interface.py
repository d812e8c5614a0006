"""The rest of Horovod's interface: questions that programs ask of a build, and names that ringd
does not have."""

from __future__ import annotations

import opcode
import sys

from ringd.torch.horovod_variables import TIMELINE


def mpi_built() -> bool:
    """False: ringd does not use MPI."""
    return False


def mpi_enabled() -> bool:
    """False: ringd does not use MPI."""
    return False


def mpi_threads_supported() -> bool:
    """False: there is no MPI to share with. Every function of ringd may be called from any
    thread."""
    return False


def gloo_built() -> bool:
    """False: ringd does not use Gloo."""
    return False


def gloo_enabled() -> bool:
    """False: ringd does not use Gloo."""
    return False


def nccl_built() -> int:
    """1: all-reduces of CUDA tensors go through NCCL, if the job's nodes have it."""
    return 1


def cuda_built() -> bool:
    """True: CUDA tensors are taken."""
    return True


def rocm_built() -> bool:
    """False: this release of ringd takes tensors of the host and of CUDA only."""
    return False


def ddl_built() -> bool:
    """False: ringd does not use IBM's DDL."""
    return False


def ccl_built() -> bool:
    """False: ringd does not use Intel's oneCCL."""
    return False


_NO_COLLECTIVE = (
    "this release has all-reduce, broadcast and barrier; ranks' tensors of one shape are gathered by "
    "allreduce(op=hvd.Sum) of zeros in which each rank fills its own place"
)

# Horovod's names that ringd.torch lacks, and what to say of each.
_MISSING = {
    "Adasum": "use op=hvd.Average (or Sum, Min, Max, Product), and scale the learning rate by hvd.size()",
    "allgather": f"{_NO_COLLECTIVE}; broadcast_object can replace it for few ranks",
    "allgather_async": _NO_COLLECTIVE,
    "allgather_object": f"{_NO_COLLECTIVE}; broadcast_object can replace it for few ranks",
    "grouped_allgather": _NO_COLLECTIVE,
    "grouped_allgather_async": _NO_COLLECTIVE,
    "alltoall": _NO_COLLECTIVE,
    "alltoall_async": _NO_COLLECTIVE,
    "reducescatter": _NO_COLLECTIVE,
    "reducescatter_async": _NO_COLLECTIVE,
    "grouped_reducescatter": _NO_COLLECTIVE,
    "grouped_reducescatter_async": _NO_COLLECTIVE,
    "sparse_allreduce_async": "this release moves dense tensors only",
    "join": "give each rank equally many batches, as torch's DistributedSampler does",
    "elastic": "the ranks of a job are fixed; write checkpoints, and start the job again",
    "start_timeline": TIMELINE,
    "stop_timeline": TIMELINE,
}


def missing(name: str) -> AttributeError | ImportError:
    """The error for a name that ``ringd.torch`` does not have, for its ``__getattr__`` to raise."""
    advice = _MISSING.get(name)
    if advice is None:
        return AttributeError(f"module 'ringd.torch' has no attribute '{name}'", name=name)
    words = f"ringd.torch has no {name}, which Horovod has: {advice}"
    # ``from ringd.torch import allgather`` replaces an AttributeError by words of its own.
    asking = sys._getframe(2)
    if asking.f_code.co_code[asking.f_lasti] == opcode.opmap["IMPORT_FROM"]:
        return ImportError(words, name="ringd.torch")
    return AttributeError(words, name=name)
