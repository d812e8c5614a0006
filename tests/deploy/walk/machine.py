"""Pretended machines with a Debian of their own, started by a real systemd. Needs root.

Each lives in namespaces: its processes, mounts, name and control groups are its own, its network is
the one that it was given. Its Debian is an overlay on a tree that several machines share, which is
read only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.integration import bare_root
from tests.integration.bare_root import BareRoot
from tests.integration.processes import PATIENCE_S, Child, wait_until

#: Beside what ringd needs: systemd, and what Debian's installer puts on every machine for people.
PACKAGES = (
    "base-passwd", "coreutils", "dash", "bash", "dbus", "grep", "iproute2", "libc-bin", "login", "passwd",
    "sed", "systemd", "systemd-sysv", "tar", "util-linux",
)  # fmt: skip
BOOT_S = 60.0
# For one script.
SCRIPT_S = 400.0
# Degraded: some unit of Debian's own did not start, as happens in namespaces.
UP = ("running", "degraded")

# FOLDER DEBIAN CONTROL_GROUP OUTSIDE:INSIDE...; the binds are seen read only.
_BOOT = """
set -eu
folder=$1 debian=$2 group=$3 root=$1/root
shift 3
# Volatile: nothing is written to the disk for its sake, which could take half a minute at the end.
mount -t overlay overlay -o "volatile,lowerdir=$debian,upperdir=$folder/upper,workdir=$folder/work" "$root"
for bind; do
  if [ -d "${bind%%:*}" ]; then mkdir -p "$root${bind#*:}"; else install -D /dev/null "$root${bind#*:}"; fi
  mount --bind -o ro "${bind%%:*}" "$root${bind#*:}"
done
mount -t cgroup2 cgroup2 "$folder/cgroup"
mkdir "$folder/cgroup/$group"
echo $$ > "$folder/cgroup/$group/cgroup.procs"
export root
exec unshare --pid --fork --kill-child --cgroup --uts --ipc sh -euc '
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/run" "$root/outside"
mount -t proc proc "$root/proc"
mount --bind -o ro "$root/proc/sys" "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
cd "$root"
pivot_root . outside
exec chroot . sh -c "umount -l /outside; exec env -i container=other /lib/systemd/systemd --show-status=no"
'
"""


def make_debian(folder: Path, packages: Sequence[str]) -> BareRoot:
    """The tree that machines share, with these packages and those that every Debian has."""
    debian = bare_root.make(bare_root.OWN_SUITE, folder, [*PACKAGES, *packages])
    # What the packages' own scripts would do, which are not run.
    for name in ("passwd", "group"):
        shutil.copy(folder / f"usr/share/base-passwd/{name}.master", folder / "etc" / name)
    return debian


class Machine:
    """One of them. Ownership: owns all processes inside; close() ends and removes everything."""

    def __init__(self, name: str, folder: Path, network: Sequence[str]) -> None:
        """`network`: goes before a command that is to run in the machine's network."""
        self.name = name
        self._folder = folder
        self._network = network
        self._control_group = f"ringd-walk-{os.getpid()}-{name}"
        self._init: Child | None = None
        self._children: list[Child] = []
        for part in ("upper", "work", "root", "cgroup"):
            (folder / part).mkdir(parents=True)

    def boot(self, debian: BareRoot, binds: Mapping[Path, Path], hosts: str) -> None:
        """Returns when systemd has started everything. `binds`: what is seen inside, read only, and
        where. `hosts`: its /etc/hosts."""
        # It ends with the tests, also if they are killed.
        bound = ["setpriv", "--pdeathsig", "KILL", *self._network]
        command = [*bound, "unshare", "--mount", "--propagation=private", "sh", "-c", _BOOT, "boot"]
        pairs = [f"{outside}:{inside}" for outside, inside in binds.items()]
        etc = self._folder / "upper/etc"
        etc.mkdir()
        (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(hosts)
        arguments = [str(self._folder), str(debian.folder), self._control_group, *pairs]
        self._init = Child([*command, *arguments], {"PATH": os.environ["PATH"]}, self._folder / "boot.log")
        wait_until(lambda: self._systemd() != 0 or not self._running(), f"{self.name} boots", BOOT_S)
        assert self._running(), f"{self.name} did not boot:\n{self._init.output}"
        # The bus comes up a moment after systemd.
        wait_until(
            lambda: self._try("root", "systemctl is-system-running").stdout.strip() in UP, "it is up", BOOT_S
        )

    def shell(self, user: str, script: str) -> str:
        """What the script says, as this user, in a login shell that ends at the first failure,
        which fails the test."""
        result = self._try(user, script)
        said = result.stdout + result.stderr
        assert result.returncode == 0, (
            f"{user}@{self.name}$ {script}\nended with {result.returncode}:\n{said}"
        )
        return said

    def send(self, script: str, other: Machine, receiving: str) -> None:
        """Root's script, and what it prints into root's other one on the other machine: what ssh
        does."""
        with subprocess.Popen(self._command("root", script), stdout=subprocess.PIPE) as sender:
            command = other._command("root", receiving)
            subprocess.run(command, stdin=sender.stdout, timeout=SCRIPT_S, check=True)
        assert sender.returncode == 0, f"root@{self.name}$ {script}\nended with {sender.returncode}"

    def start(self, user: str, script: str) -> Child:
        """As shell(), in the background."""
        log = self._folder / f"{len(self._children)}.log"
        child = Child(self._command(user, script), {"PATH": os.environ["PATH"]}, log)
        self._children.append(child)
        return child

    def _try(self, user: str, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(user, script),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SCRIPT_S,
            check=False,
        )

    def _command(self, user: str, script: str) -> list[str]:
        """--init-groups: with the groups that the user has now, as after a login."""
        become = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--reset-env"]
        enter = ["nsenter", "--target", str(self._systemd()), "--all", "--root", "--wd"]
        return [*enter, *become, "bash", "-lc", f"set -eu\ncd\n{script}"]

    def _running(self) -> bool:
        return self._init is not None and self._init.running()

    def _systemd(self) -> int:
        """Its pid outside, 0 before it is there."""
        assert self._init is not None
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        for pid in children.read_text().split() if children.exists() else ():
            with contextlib.suppress(FileNotFoundError):
                if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                    return int(pid)
        return 0

    def close(self) -> None:
        if self._init is not None:
            if self._running() and (systemd := self._systemd()) != 0:
                os.kill(systemd, signal.SIGKILL)  # and so every process of its namespace
                self._init.wait()
            for child in [*self._children, self._init]:
                child.destroy()
            self._remove_control_groups()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_control_groups(self) -> None:
        script = 'mount -t cgroup2 cgroup2 "$1" && find "$1/$2" -depth -type d -exec rmdir {} +'
        subprocess.run(
            [
                "unshare", "--mount", "--propagation=private", "sh", "-euc", script, "remove",
                self._folder / "cgroup", self._control_group,
            ],
            timeout=PATIENCE_S,
            check=True,
        )  # fmt: skip
