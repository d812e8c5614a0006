#!/usr/bin/env python3
"""Puts built files together as a wheel.

The same files give the same bytes: entries are sorted and have one fixed time. Needs nothing but
Python.

    assemble_wheel.py WHEEL VERSION_HEADER README FILE=NAME_IN_WHEEL...

A name that begins with ``licenses/`` goes into the wheel's own folder of that name.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

NAME = "ringd"
# The extension keeps to the stable ABI of 3.10. libringd needs the C library alone, of 2.34 or
# later: tests/client/python/wheel_test.py asks auditwheel whether that is right.
TAG = "cp310-abi3-manylinux_2_34_x86_64"
# The earliest that a zip file can say.
TIME = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Collective communication for training through a node's ringd daemon
License: Apache-2.0
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.10
Provides-Extra: torch
Requires-Dist: torch>=2.3; extra == "torch"
Requires-Dist: cloudpickle>=2.0; extra == "torch"
Description-Content-Type: text/markdown

{readme}"""

WHEEL = f"""\
Wheel-Version: 1.0
Generator: ringd
Root-Is-Purelib: false
Tag: {TAG}
"""


def release(version_header: Path) -> str:
    match = re.search(r'kLibraryVersion\[\] = "([^"]+)"', version_header.read_text())
    if match is None:
        raise SystemExit(f"{version_header}: no kLibraryVersion")
    return match.group(1)


def file_name(version: str) -> str:
    return f"{NAME}-{version}-{TAG}.whl"


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, wherever this runs
    info.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
    return info


def assemble(wheel: Path, version: str, readme: str, files: dict[str, Path]) -> None:
    info = f"{NAME}-{version}.dist-info"
    contents = {
        f"{info}/{name}" if name.startswith("licenses/") else name: path.read_bytes()
        for name, path in files.items()
    }
    contents[f"{info}/METADATA"] = METADATA.format(name=NAME, version=version, readme=readme).encode()
    contents[f"{info}/WHEEL"] = WHEEL.encode()
    record = "".join(record_line(name, contents[name]) for name in sorted(contents))
    contents[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in sorted(contents):
            archive.writestr(entry(name), contents[name], compresslevel=6)


def main(arguments: list[str]) -> None:
    wheel, version_header, readme = (Path(argument) for argument in arguments[:3])
    version = release(version_header)
    expected = file_name(version)
    if wheel.name != expected:
        raise SystemExit(f"client/python/BUILD names {wheel.name}, but this is {expected}")
    files = {}
    for argument in arguments[3:]:
        path, _, name = argument.partition("=")
        files[name] = Path(path)
    assemble(wheel, version, readme.read_text(), files)


if __name__ == "__main__":
    main(sys.argv[1:])
