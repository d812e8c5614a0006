"""A folder with what a machine with a GPU lacks: ringd's programs, their libraries, the Python
package, and for `--emulated` the emulators.

    bin/ringd ...       start the programs with lib/ on the loader's path
    programs/ringd ...  the programs, stripped
    lib/                Debian's libraries that they need; not the C and C++ libraries
    python/ringd/       the wheel, unpacked
    tests/...           the emulators, where Bazel has them too
    bundle.json         what the machine must have

The C and C++ libraries are the machine's own, since the driver and NCCL are opened by the same
process and were made for those. The bundle says which versions its programs need.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.integration.processes import ROOT, binary

DEFAULT = ROOT / ".cache" / "gpu-bundle"
LIMIT_BYTES = 64 << 20
PROGRAMS = ("ringd", "ringd-engine", "ringctl")
EMULATORS = (
    "gpu/emulator/cuda/libcuda.so.1",
    "gpu/emulator/nccl/libnccl.so.2",
    "backends/cuda/kernels/libemulated_kernels.so",
)
# Of the machine: the C library in its parts, and the C++ library.
OWN_LIBRARIES = re.compile(
    r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so\b"
)
NEEDED_VERSION = re.compile(r"\b(GLIBC|GLIBCXX)_(\d+(?:\.\d+)+)\b")
TOOL_TIMEOUT_S = 60

STARTER = """\
#!/bin/sh
# Starts the program of this name with the bundle's libraries.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
exec "$here/programs/$(basename "$0")" "$@"
"""


class BundleError(Exception):
    """No bundle can be made, or the one that is there can't be used; the text says why."""


@dataclass(frozen=True)
class Bundle:
    """One that has been made."""

    folder: Path

    @property
    def programs(self) -> Path:
        """For RINGD_BIN_DIR."""
        return self.folder / "bin"

    @property
    def libraries(self) -> Path:
        """For LD_LIBRARY_PATH; `programs` have it."""
        return self.folder / "lib"

    @property
    def python(self) -> Path:
        """For PYTHONPATH."""
        return self.folder / "python"

    def needs(self) -> dict[str, str]:
        """The versions of the C and C++ libraries that the programs need at least."""
        return dict(json.loads((self.folder / "bundle.json").read_text())["needs"])

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def version(self) -> str:
        """What ringd says of itself. BundleError: it does not start here."""
        try:
            said = subprocess.run(
                [self.programs / "ringd", "--version"],
                capture_output=True,
                text=True,
                timeout=TOOL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BundleError(f"{self.programs / 'ringd'}: {error}") from None
        if said.returncode != 0:
            needs = ", ".join(f"{name} {version}" for name, version in self.needs().items())
            raise BundleError(
                f"ringd does not start on this machine: {said.stderr.strip()} (it needs {needs} or later)"
            )
        return said.stdout.strip()


def find(folder: Path = DEFAULT) -> Bundle:
    """BundleError: there is none."""
    if not (folder / "bundle.json").exists():
        raise BundleError(
            f"there is no bundle in {folder}; make one with tests/gpu/bundle where ringd is built"
        )
    return Bundle(folder)


def make(folder: Path = DEFAULT, *, emulators: bool = False, limit_bytes: int = LIMIT_BYTES) -> Bundle:
    """Makes the bundle from what is built here (RINGD_BIN_DIR, else bin/); replaces what was there.

    BundleError: something is not built, or the bundle is too large; then no bundle is left.
    """
    built = binary("ringd").resolve().parents[1]
    if folder.exists() and any(folder.iterdir()) and not (folder / "bundle.json").exists():
        raise BundleError(f"{folder} has something else in it than a bundle")
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("bin", "programs", "lib", "python"):
        (folder / part).mkdir(parents=True)
    for name in PROGRAMS:
        _strip(binary(name).resolve(), folder / "programs" / name)
        (folder / "bin" / name).write_text(STARTER)
        (folder / "bin" / name).chmod(0o755)
    own = [binary(name).resolve() for name in PROGRAMS]
    for library_name in EMULATORS if emulators else ():
        source = built / "tests" / library_name
        if not source.exists():
            raise BundleError(f"{source} is not built; run bazel build //tests:emulators")
        target = folder / "tests" / library_name
        target.parent.mkdir(parents=True, exist_ok=True)
        _strip(source, target)
        own.append(source)
    for library in _libraries(own):
        _strip(library.resolve(), folder / "lib" / library.name)
    _unpack_wheel(built / "client" / "python", folder / "python")
    bundle = Bundle(folder)
    manifest = {"needs": _needed_versions(folder)}
    (folder / "bundle.json").write_text(json.dumps(manifest, indent=1) + "\n")
    check_size(bundle, limit_bytes)
    return bundle


def check_size(bundle: Bundle, limit_bytes: int) -> None:
    """BundleError: the bundle is larger, and has been removed."""
    size = bundle.size()
    if size <= limit_bytes:
        return
    largest = sorted(
        ((path.stat().st_size, path) for path in bundle.folder.rglob("*") if path.is_file()), reverse=True
    )
    names = ", ".join(f"{path.name} {mebibytes(bytes_)}" for bytes_, path in largest[:5])
    shutil.rmtree(bundle.folder)
    raise BundleError(
        f"the bundle would have {mebibytes(size)}, more than {mebibytes(limit_bytes)}; largest: {names}"
    )


def mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def _run(*command: str | Path) -> str:
    try:
        said = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BundleError(f"{command[0]}: {error}") from None
    return said.stdout


def _strip(source: Path, target: Path) -> None:
    """A copy without what only a debugger needs."""
    _run("strip", "--strip-unneeded", "-o", target, source)
    target.chmod(0o755)


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """What the loader opens for these programs, but for what is the machine's own."""
    found: set[Path] = set()
    for program in programs:
        for line in _run("ldd", program).splitlines():
            name, arrow, place = line.strip().partition(" => ")
            if OWN_LIBRARIES.match(name):
                continue
            if arrow and not place.startswith("/"):
                raise BundleError(f"{program} needs {name}, which is not on this machine")
            if arrow:
                found.add(Path(place.partition(" (")[0]))
    return sorted(found)


def _unpack_wheel(folder: Path, target: Path) -> None:
    wheels = sorted(folder.glob("ringd-*.whl"))
    if len(wheels) != 1:
        raise BundleError(f"{len(wheels)} wheels in {folder}; run deploy/setup")
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(target)
    for library in (target / "ringd").glob("*.so*"):
        _strip(library, library)


def _needed_versions(folder: Path) -> dict[str, str]:
    """The latest symbol version of the C and the C++ library that any file asks for."""
    latest: dict[str, tuple[int, ...]] = {}
    for file in folder.rglob("*"):
        if not file.is_file() or file.read_bytes()[:4] != b"\x7fELF":
            continue
        for name, version in NEEDED_VERSION.findall(_run("readelf", "--version-info", "--wide", file)):
            numbers = tuple(int(part) for part in version.split("."))
            latest[name] = max(latest.get(name, ()), numbers)
    return {name: ".".join(map(str, numbers)) for name, numbers in sorted(latest.items())}
