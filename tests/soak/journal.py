"""What happened when, and what was wrong."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something wrong. `lane`: what was under way; `what`: which promise was broken."""

    at: float
    lane: str
    what: str
    text: str

    def __str__(self) -> str:
        return f"[{self.at:7.2f} s] {self.lane}: {self.what}: {self.text}"


class Journal:
    """Thread safety: any thread may call anything."""

    def __init__(self, verbose: bool) -> None:
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._verbose = verbose
        self._lines: list[str] = []
        self.lane = "start"
        self.findings: list[Finding] = []

    def now(self) -> float:
        return time.monotonic() - self._begin

    def note(self, text: str) -> None:
        """Something happens."""
        line = f"[{self.now():7.2f} s] {self.lane}: {text}"
        with self._lock:
            self._lines.append(line)
        if self._verbose:
            print(line, flush=True)

    def find(self, what: str, text: str) -> None:
        """Something is wrong."""
        finding = Finding(self.now(), self.lane, what, text)
        with self._lock:
            self.findings.append(finding)
            self._lines.append(f"{finding}  <-- wrong")
        if self._verbose:
            print(f"{finding}  <-- wrong", flush=True)

    def recent(self, count: int = 60) -> list[str]:
        """The last lines."""
        with self._lock:
            return self._lines[-count:]
