"""What counts as a command of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.walk.commands import Commands, program

PAGE = """
Text, and `inline --code`.

    ┌────────┐
    │ a box  │
    └────────┘

    first --flag 4        # what it does
    second a \\
      b c
    # a remark

- a list
    that is no block

```python
import this
```

```
third 'a # b'
first again
```
"""
FIRST = "first --flag 4        # what it does"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_commands_are_the_lines_of_code_blocks(page: Path) -> None:
    assert Commands(page).take_all("") == [FIRST, "second a b c", "third 'a # b'", "first again"]


def test_what_is_not_taken_is_left_with_its_line(page: Path) -> None:
    commands = Commands(page)
    assert commands.take("first") == FIRST
    assert commands.take("third") == "third 'a # b'"
    assert commands.left() == ["page.md:9: second a b c", "page.md:22: first again"]
    assert commands.take("first again") == "first again"
    with pytest.raises(KeyError, match="no .other. command 'first"):
        commands.take("first")


def test_the_program_is_the_block_of_python(page: Path) -> None:
    assert program(page) == "import this\n"
