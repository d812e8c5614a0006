"""The include check: who may include what, as drawn in README.md.

Bazel's own layering check does nothing under g++, and headers of Debian's packages are visible to
every file; so the rules are kept here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.lint.source_tree import SourceTree

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)

# Which top-level folders the files of a folder may include from.
ALLOWED = {
    "proto": {"proto"},
    "backends": {"proto", "backends"},
    "daemon": {"proto", "backends", "daemon"},
    "client": {"proto", "client"},
    "tests": {"proto", "backends", "daemon", "client", "tests"},
}

# What a folder may include beyond that: a trainer uses a GPU's slab as its engine does, and may
# launch in its place.
EXCEPTIONS = {
    "client/core/": {
        "backends/nccl/nccl_types.h",
        *(
            f"backends/cuda/{name}.h"
            for name in (
                "cuda_context",
                "cuda_stream",
                "device_copy",
                "device_slab",
                "registered_memory",
                "timeline",
            )
        ),
    },
    "client/core/lanes/device/": {
        "backends/nccl/nccl_communicator.h",
        *(
            f"backends/device/{name}.h"
            for name in (
                "device_bucket",
                "device_event",
                "device_launcher",
                "device_thread",
                "launch_message",
            )
        ),
    },
}

# Folders with rooms, and what their rooms may include from them, besides themselves: other rooms,
# and files that stand in the folder directly. Those may include all of it, unless there is a line
# "" for them.
CORE = "client/core/"
ROOMS: dict[str, dict[str, set[str]]] = {
    CORE: {
        "waiting": set(),
        "tensors": {"waiting"},
        "attach": {"waiting", "tensors"},
        "lanes": {"waiting", "tensors", "attach"},
    },
    f"{CORE}lanes/": {
        "": set(),
        "node": {"lane.h"},
        "wire": {"lane.h"},
        "rank_exchange": set(),
        "device": set(),
    },
    "client/cli/": {
        "views": set(),
        "processes": set(),
        "query": {"views", "processes"},
        "trace": {"views", "query"},
        "run": {"query", "processes"},
        "command_line": {"views", "query", "trace", "run"},
    },
    "daemon/jobs/": {
        "membership": set(),
        "measuring": set(),
        "plans": {"membership"},
        "history": set(),
        "tracing": set(),
        "coordinator": {"membership", "measuring", "plans"},
        "communicator": {"membership"},
    },
    "daemon/lanes/": {
        "": set(),
        "node": {"lane.h", "waiting_submission.h"},
        "wire": {"lane.h", "waiting_submission.h", "channel_time.h", "rank_exchange"},
        "rank_exchange": set(),
        "device": set(),
    },
    "daemon/schedule/": {
        "protocol": set(),
        "link": {"protocol"},
        "routes": {"protocol"},
        "planning": {"protocol", "link"},
        "coordinator": {"protocol", "link", "planning"},
        "node": {"protocol", "link"},
    },
}

# Headers of a vendor, and the folders that may include them (tests always may).
VENDORS = (
    (re.compile(r"^(ucp|ucs|uct|ucm)/"), ("backends/ucx/",)),
    (re.compile(r"^cuda.*\.h$"), ("backends/cuda/",)),
    (re.compile(r"^nccl\.h$"), ("backends/nccl/",)),
    (re.compile(r"^Python\.h$"), ("client/python/",)),
    (re.compile(r"^hwy/"), ("proto/reduce/",)),
    (re.compile(r"^toml\+\+/"), ("daemon/config/",)),
    (re.compile(r"^CLI/"), ("daemon/", "client/cli/")),
)

# gRPC is for the edges: what moves, reduces or schedules data doesn't know of it.
GRPC = re.compile(r"^(grpc|grpcpp)/|\.grpc\.pb\.h$")
NO_GRPC = (
    *("proto/", "backends/", "daemon/schedule/", "daemon/engine/", "daemon/peers/", "daemon/config/"),
    "daemon/logging/",
    *(f"{CORE}{room}/" for room in ROOMS[CORE] if room != "attach"),
)

# The schedule is pure, so that it can be simulated: no clocks, sockets or threads.
IMPURE = re.compile(
    r"^(thread|mutex|shared_mutex|condition_variable|future|atomic|fstream|unistd\.h|poll\.h|pthread\.h)$"
    r"|^sys/|^net|^spdlog/|^absl/synchronization/"
    r"|^proto/base/(futex|doorbell|mutex|unix_socket|memfd|memory_mapping|unique_fd)\.h$"
)
PURE = "daemon/schedule/"


def check(tree: SourceTree) -> list[str]:
    """One line for each include that breaks a rule."""
    return [problem for path in tree.cpp for problem in _check_file(tree, path)]


def _check_file(tree: SourceTree, path: Path) -> Iterator[str]:
    text = tree.read(path)
    for match in INCLUDE.finditer(text):
        quote, target = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        problem = check_include(path.as_posix(), target)
        if problem is None and quote == '"':
            problem = _check_exists(tree, path, target)
        if problem is not None:
            yield f"{path}:{line}: {problem}"


def check_include(path: str, target: str) -> str | None:
    """What is wrong with `path` including `target`; None if nothing is."""
    layer = path.split("/", 1)[0]
    target_layer = target.split("/", 1)[0]
    if target.startswith((".", "/")):
        return f'"{target}" is not written from the top of the tree'
    excepted = any(path.startswith(folder) and target in headers for folder, headers in EXCEPTIONS.items())
    if excepted:
        return None
    if layer in ALLOWED and target_layer in ALLOWED and target_layer not in ALLOWED[layer]:
        return f'{layer}/ must not include "{target}": it may use {", ".join(sorted(ALLOWED[layer]))} only'
    if layer == "tests":
        return None
    for folder, rooms in ROOMS.items():
        room, other = _room_of(folder, path), _room_of(folder, target)
        may_all = room == "" and "" not in rooms
        if room is None or may_all or (other == room and room in rooms):
            continue
        if room not in rooms:
            return (
                f"{folder}{room}/ is not among the rooms of {folder}: say in tests/lint/layers.py what "
                "it may use"
            )
        used = other or target.removeprefix(folder)
        if other is not None and used not in rooms[room]:
            allowed = ", ".join(sorted(rooms[room])) or "no other room"
            return f'{folder}{room}/ must not include "{target}": it may use {allowed}'
    for vendor, folders in VENDORS:
        if vendor.search(target) and not path.startswith(folders):
            return f"{target} is for {', '.join(folders)} only"
    if GRPC.search(target) and path.startswith(NO_GRPC):
        return f"{target}: no gRPC in {path.rsplit('/', 1)[0]}/"
    if path.startswith(PURE) and IMPURE.search(target):
        return f"{target}: {PURE} is pure, without clocks, sockets or threads"
    return None


def _room_of(folder: str, path: str) -> str | None:
    """The room of `folder` in which `path` is; "" in none of them, None outside of `folder`."""
    if not path.startswith(folder):
        return None
    room, slash, _ = path.removeprefix(folder).partition("/")
    return room if slash else ""


def _check_exists(tree: SourceTree, path: Path, target: str) -> str | None:
    """Quoted includes are ours and are written from the top; Abseil's and Highway's are the
    exception."""
    if target.startswith(("absl/", "hwy/")):
        return None
    if path.suffix == ".c" and (tree.root / path.parent / target).is_file():
        return None  # built without Bazel, by an MPI's own compiler
    source = re.sub(r"(\.grpc)?\.pb\.h$", ".proto", target)
    if (tree.root / target).is_file() or (tree.root / source).is_file():
        return None
    return f'"{target}" is not in the tree: quotes are for our own headers, written from the top'
