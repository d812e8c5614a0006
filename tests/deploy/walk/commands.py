"""What a page of documentation tells its reader to type: the lines of its code blocks.

A walk takes them one after the other. What it has neither taken nor passed over is left, and fails
it.
"""

from __future__ import annotations

import re
from pathlib import Path


class Commands:
    """The code blocks of one page, with what has been taken of them."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._left: list[tuple[int, str]] = []
        for number, block in _blocks(page.read_text()):
            is_picture = any(stroke in line for line in block for stroke in "┌│└")
            if not is_picture:
                self._left += _commands(number, block)

    def take(self, beginning: str) -> str:
        """The first command left that begins so. KeyError: there is none."""
        for index, (_, command) in enumerate(self._left):
            if command.startswith(beginning):
                del self._left[index]
                return command
        raise KeyError(f"{self._page.name} has no (other) command '{beginning}...'; left: {self.left()}")

    def take_all(self, beginning: str) -> list[str]:
        """All that are left and begin so: one at least."""
        taken = [self.take(beginning)]
        while any(command.startswith(beginning) for _, command in self._left):
            taken.append(self.take(beginning))
        return taken

    def left(self) -> list[str]:
        """As PAGE:LINE: COMMAND."""
        return [f"{self._page.name}:{number}: {command}" for number, command in self._left]


def program(page: Path) -> str:
    """The page's one block of Python."""
    (found,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    """Indented and fenced blocks, but Python, each with the number of its first line."""
    blocks: list[tuple[int, list[str]]] = []
    fence: str | None = None
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        indented = fence is None and line.startswith("    ")
        if line.startswith("```"):
            fence = line.removeprefix("```") if fence is None else None
            blocks.append((number + 1, []))
        elif indented and before == "":
            blocks.append((number, [line.strip()]))
        elif fence not in (None, "python") or (indented and before.startswith("    ")):
            blocks[-1][1].append(line.strip())
        before = line
    return [(number, lines) for number, lines in blocks if lines]


def _commands(number: int, block: list[str]) -> list[tuple[int, str]]:
    """One entry a command; continued lines are joined, comments are left to the shell."""
    commands: list[tuple[int, str]] = []
    continued = False
    for offset, line in enumerate(block):
        if continued:
            first, command = commands.pop()
            commands.append((first, command.removesuffix("\\") + line))
        elif line and not line.startswith("#"):
            commands.append((number + offset, line))
        continued = line.endswith("\\")
    return commands
