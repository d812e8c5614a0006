"""HOROVOD_* variables: honoured where ringd has the same thing, else named as ignored."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Collection, Mapping
from typing import Any

_PLACE = {
    "rank": "HOROVOD_RANK",
    "size": "HOROVOD_SIZE",
    "local_rank": "HOROVOD_LOCAL_RANK",
    "local_size": "HOROVOD_LOCAL_SIZE",
}
# That of other launchers tells of a place.
_PLACES_OF_OTHERS = ("LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_MEETING_PLACE = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
# Option of ringd.Context: Horovod's variable, ringd's own.
_SECONDS = {
    "operation_timeout": ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "RINGD_OPERATION_TIMEOUT"),
    "start_timeout": ("HOROVOD_START_TIMEOUT", "RINGD_START_TIMEOUT"),
}

# Set by horovodrun beside the place, or for the build of Horovod, or what is always so here: nobody
# misses them.
_MEANT_FOR_OTHERS = (
    *("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_CONTROLLER"),
    *("HOROVOD_CPU_OPERATIONS", "HOROVOD_GLOO_*", "HOROVOD_WITH_*", "HOROVOD_WITHOUT_*", "HOROVOD_GPU_*"),
    *("HOROVOD_BUILD_*", "HOROVOD_CUDA_HOME", "HOROVOD_ROCM_HOME", "HOROVOD_NCCL_*", "HOROVOD_MPICXX_SHOW"),
    *("HOROVOD_ALLOW_MIXED_GPU_IMPL", "HOROVOD_DEBUG", "HOROVOD_DYNAMIC_PROCESS_SETS"),
)

_LEARNS = "ringd measures and learns this itself"
TIMELINE = "`ringctl trace --job ID --seconds 10 --out FILE` writes a timeline of a job that runs"
# What has the same purpose here; the first pattern that fits counts.
_INSTEAD = {
    "HOROVOD_FUSION_THRESHOLD": (
        "ringd learns which tensors travel together; RINGD_FUSION=64MiB fixes the size"
    ),
    "HOROVOD_STALL_CHECK_*": "ringd warns after stall_warning, a setting in ringd.toml",
    "HOROVOD_LOG_*": "ringd has the log; its level is log_level in ringd.toml",
    "HOROVOD_TIMELINE*": TIMELINE,
    "HOROVOD_AUTOTUNE*": _LEARNS,
    "HOROVOD_CYCLE_TIME": _LEARNS,
    "HOROVOD_CACHE_CAPACITY": _LEARNS,
    "HOROVOD_HIERARCHICAL_*": _LEARNS,
    "HOROVOD_DISABLE_GROUP_FUSION": _LEARNS,
    "HOROVOD_ADASUM_*": "ringd has no Adasum",
    "HOROVOD_ELASTIC*": "the ranks of a job are fixed",
}


def options(environment: Mapping[str, str], given: Collection[str] = ()) -> dict[str, Any]:
    """What Horovod's variables say of the options of ``ringd.Context`` that are not `given`.

    A place that horovodrun gives goes before Slurm's: that tells of horovodrun's own processes.
    ``ValueError``: a variable is no number, or some of a place are missing; the message names it.
    """
    found: dict[str, Any] = {}
    if not _PLACE.keys() & set(given) and _has_place(environment):
        found = {option: _number(environment, name, int) for option, name in _PLACE.items()}
        if "job_id" not in given and not environment.get("RINGD_JOB_ID"):
            found |= _job_id(environment)
    for option, (name, own) in _SECONDS.items():
        if option not in given and not environment.get(own) and environment.get(name):
            seconds = _number(environment, name, float)
            if seconds > 0:  # 0: never
                found[option] = seconds
    return found


def _has_place(environment: Mapping[str, str]) -> bool:
    if environment.get("RANK"):
        return False
    missing = [name for name in _PLACE.values() if not environment.get(name)]
    is_half = missing and any(environment.get(_PLACE[option]) for option in ("rank", "size"))
    # Where nobody else gives a place, each rank would take itself for the only one.
    if is_half and not any(environment.get(name) for name in _PLACES_OF_OTHERS):
        raise ValueError(
            f"the environment looks like horovodrun's, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set (or give rank, size, local_rank and local_size)"
        )
    return not missing


def _job_id(environment: Mapping[str, str]) -> dict[str, str]:
    """One for each horovodrun, by where its ranks meet: no two of them share that."""
    address, port = (environment.get(name) for name in _MEETING_PLACE)
    return {"job_id": f"horovod-{address}-{port}"} if address and port else {}


def _number(environment: Mapping[str, str], name: str, kind: type[int] | type[float]) -> Any:
    text = environment[name]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}='{text}' is not a number") from None


def ignored(environment: Mapping[str, str]) -> str | None:
    """One line that names the variables without effect, and what to use; None if there are none."""
    honoured = {name for name, _ in _SECONDS.values()}
    # Whoever gives the place: Horovod's variables of it say the same, or are left over.
    honoured |= set(_PLACE.values())
    by_advice: dict[str, list[str]] = {}
    for name in sorted(environment):
        if not name.startswith("HOROVOD_") or name in honoured or not environment[name]:
            continue
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _MEANT_FOR_OTHERS):
            continue
        fitting = (advice for pattern, advice in _INSTEAD.items() if fnmatch.fnmatchcase(name, pattern))
        by_advice.setdefault(next(fitting, "ringd has no such setting"), []).append(name)
    if not by_advice:
        return None
    parts = [f"{', '.join(names)} ({advice})" for advice, names in by_advice.items()]
    return f"ringd ignores {'; '.join(parts)}"


_told = False


def tell_of_ignored(environment: Mapping[str, str]) -> None:
    """Warns of them, once in a process."""
    global _told
    line = ignored(environment)
    if line is not None and not _told:
        _told = True
        warnings.warn(line, stacklevel=3)
