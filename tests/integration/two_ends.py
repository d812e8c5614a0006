"""Two ringds whose only way to each other is a line that the test has made."""

from __future__ import annotations

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
