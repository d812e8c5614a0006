"""Debian systems that have Python and nothing of ringd's: what a wheel finds on other machines.

They lie in folders, and are entered by `chroot` in a mount namespace of their own, which needs
root. Packages come from the mirror that apt is configured for. They are unpacked and not set up,
which takes seconds.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.processes import ROOT, Child

#: What ringd itself is built and tested on.
OWN_SUITE = "bookworm"
# libstdc++ is what every manylinux wheel may expect beside the C library.
PACKAGES = ("base-files", "libc-bin", "libstdc++6", "python3")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MAKE_TIMEOUT_S = 180
INSTALL_TIMEOUT_S = 60
# Libraries that were linked into libringd, by the beginnings of their names.
FOREIGN_LIBRARIES = ("libgrpc", "libgpr", "libprotobuf", "libabsl", "libupb", "libcares", "libre2", "libhwy")


class NoSuchSuite(Exception):
    """The mirror does not have this release of Debian."""


@dataclass(frozen=True)
class BareRoot:
    """One such system."""

    folder: Path

    def command(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        binds: Mapping[Path, str] | None = None,
    ) -> list[str]:
        """What runs `command` inside, with these variables and no others. `binds`: folders outside,
        and where they are seen inside."""
        mounts = [
            ("/dev", "/dev"),
            ("/proc", "/proc"),
            *((str(out), at) for out, at in (binds or {}).items()),
        ]
        steps = ["set -e"]
        for outside, inside in mounts:
            place = shlex.quote(f"{self.folder}{inside}")
            steps += [f"mkdir -p {place}", f"mount --rbind {shlex.quote(outside)} {place}"]
        own = {"PATH": "/usr/bin:/bin", "HOME": "/", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        settings = [f"{name}={value}" for name, value in (own | dict(variables or {})).items()]
        steps.append(
            f'exec env -i {shlex.join(settings)} /usr/sbin/chroot {shlex.quote(str(self.folder))} "$@"'
        )
        shell = ["unshare", "--mount", "--propagation=private", "sh", "-c", "\n".join(steps), "sh"]
        return [*shell, *command]

    def start(
        self,
        log: Path,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        binds: Mapping[Path, str] | None = None,
    ) -> Child:
        return Child(self.command(command, variables=variables, binds=binds), {"PATH": "/usr/bin:/bin"}, log)

    def install(self, wheel: Path) -> None:
        """As `pip install WHEEL` there: that system's Python decides whether the wheel is for
        it."""
        (self.folder / "opt").mkdir(exist_ok=True)
        shutil.copy(wheel, self.folder / "opt" / wheel.name)
        # The test environment's pip, which is plain Python.
        (pip,) = (ROOT / ".venv" / "lib").glob("python3*/site-packages/pip")
        shutil.copytree(pip, self.folder / "opt" / "pip" / "pip")
        result = subprocess.run(
            self.command(
                ["python3", "-m", "pip", "install", "--no-index", "--target=/opt/site", f"/opt/{wheel.name}"],
                variables={"PYTHONPATH": "/opt/pip"},
            ),
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr

    def foreign_libraries(self) -> list[str]:
        """Files that would hide that the wheel lacks something."""
        return [path.name for path in self.folder.rglob("*.so*") if path.name.startswith(FOREIGN_LIBRARIES)]


def make(suite: str, folder: Path, packages: Sequence[str] = ()) -> BareRoot:
    """Unpacks a system, with these packages too, into the folder, which is made. NoSuchSuite: the
    mirror has none."""
    result = subprocess.run(
        [
            "mmdebstrap",
            "--variant=extract",
            f"--include={','.join([*PACKAGES, *packages])}",
            *(f"--aptopt={line}" for line in _proxies()),
            suite,
            str(folder),
            f"deb [signed-by={KEYRING}] {_mirror()} {suite} main",
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=MAKE_TIMEOUT_S,
        check=False,
    )
    if result.returncode != 0 and "does not have a Release file" in result.stderr:
        raise NoSuchSuite(suite)
    assert result.returncode == 0, f"mmdebstrap could not make {suite}:\n{result.stderr}"
    return BareRoot(folder)


def _mirror() -> str:
    """Where apt gets Debian's own packages from."""
    listing = _output("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    for line in listing.splitlines():
        release, _, address = line.partition(" ")
        if release == OWN_SUITE:
            return address
    raise AssertionError(f"apt is configured for no mirror of {OWN_SUITE}:\n{listing}")


def _proxies() -> list[str]:
    """mmdebstrap's apt does not read this system's settings."""
    return [line for line in _output("apt-config", "dump", "Acquire").splitlines() if "::Proxy" in line]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
