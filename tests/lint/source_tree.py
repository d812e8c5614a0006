"""The files that lint looks at: those that git tracks, and new ones that it doesn't ignore."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CPP_SUFFIXES = frozenset({".h", ".hpp", ".cc", ".c"})
# Written by others and kept as they are.
FOREIGN = ("third_party/stubs/", "third_party/static/foreign/")


@dataclass(frozen=True)
class SourceTree:
    """A checkout. Paths are relative to its root."""

    root: Path

    @cached_property
    def files(self) -> list[Path]:
        # Root may look at another user's checkout.
        git = ["git", "-c", "safe.directory=*", "-C", str(self.root)]
        command = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, check=True, capture_output=True).stdout.decode()
        names = sorted({name for name in listing.split("\0") if name and not name.startswith(FOREIGN)})
        return [Path(name) for name in names if (self.root / name).is_file()]

    @cached_property
    def cpp(self) -> list[Path]:
        return [path for path in self.files if path.suffix in CPP_SUFFIXES]

    @cached_property
    def python(self) -> list[Path]:
        return [path for path in self.files if path.suffix == ".py" or self._starts_with(path, b"python")]

    @cached_property
    def shell(self) -> list[Path]:
        return [
            path for path in self.files if path.suffix == ".sh" or self._starts_with(path, b"bash", b"/sh")
        ]

    def read(self, path: Path) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def _starts_with(self, path: Path, *interpreters: bytes) -> bool:
        """Whether a file without suffix names one of these interpreters in its first line."""
        if path.suffix:
            return False
        with (self.root / path).open("rb") as file:
            first_line = file.readline(100)
        return first_line.startswith(b"#!") and any(name in first_line for name in interpreters)
