"""Two ringds whose only way to each other is a line that the test has made."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from tests.integration.cluster import Cluster, Node
from tests.integration.long_line import LongLine
from tests.integration.shaped_line import ShapedLine
from tests.soak.network import Network

LineT = TypeVar("LineT", bound=LongLine | ShapedLine | Network)


class TwoEnds(Cluster, Generic[LineT]):
    """Two ringds at the ends of a line, which is theirs: it is closed when they have ended."""

    def __init__(self, folder: Path, line: LineT, **settings: object) -> None:
        super().__init__(folder)
        self.line: LineT = line
        try:
            self.start_nodes(2, **settings)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        try:
            super().end()
        finally:
            self.line.close()

    def _start(self, name: str, settings: dict[str, object]) -> Node:
        end = int(name.removeprefix("node"))
        address = {"peer_address": f"{self.line.address(end)}:0"}
        return Node(name, self.folder, settings | address, self.line.inside(end))


@contextlib.contextmanager
def two_ends(line: LineT, **settings: object) -> Iterator[TwoEnds[LineT]]:
    """For a test; `line` is theirs from here on."""
    # Not tmp_path: its name is too long for a Unix socket.
    folder = Path(tempfile.mkdtemp(prefix="ringd-", dir="/tmp"))
    try:
        ends = TwoEnds(folder, line, **settings)
        try:
            yield ends
        finally:
            ends.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
