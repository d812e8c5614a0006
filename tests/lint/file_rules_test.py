"""Each rule about files must notice a file that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from tests.lint import file_rules

GUARDED = "#ifndef RINGD_PROTO_A_H_\n#define RINGD_PROTO_A_H_\n#endif\n"


def complaints(path: str, text: str) -> list[str]:
    return list(file_rules.check_file(Path(path), text))


def test_a_good_header_passes() -> None:
    assert complaints("proto/a.h", "// What it is.\n" + GUARDED) == []


def test_a_released_header_keeps_its_guard_and_its_lines() -> None:
    assert complaints("tests/client/released/ringd_1_2.h", GUARDED + "/*" + "x" * 99 + "*/\n") == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("proto/b.h", GUARDED, "RINGD_PROTO_B_H_"),
        ("proto/a.h", "#pragma once\n", "include guard"),
        ("daemon/utils.cc", "int a;\n", "says nothing"),
        ("daemon/a.cc", "int a;\n" * (file_rules.MAX_LINES + 1), "split it"),
        ("daemon/a.cc", "int a;", "no newline"),
        ("daemon/a.cc", "int a; \n", "white space"),
        ("daemon/a.cc", "\tint a;\n", "a tab"),
    ],
    ids=["wrong-guard", "no-guard", "name", "length", "last-line", "white-space", "tab"],
)
def test_a_broken_rule_is_named(path: str, text: str, expected: str) -> None:
    found = complaints(path, text)
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("daemon/a.cc", "// {}\n"),
        ("daemon/a.cc", "int a;  // {}\n"),
        ("client/a.c", "/* One.\n * {} */\n"),
        ("proto/a.proto", "int32 a = 1;\n  // {}\n"),
        ("daemon/BUILD", "# {}\n"),
        ("deploy/setup", "#!/bin/bash\n# {}\n"),
        ("tests/a.py", "a = 1\n# {}\n"),
        ("tests/a.py", "a = 1  # {}\n"),
        ("tests/a", '#!/usr/bin/env python3\n"""{}"""\n'),
        ("tests/a.py", 'class A:\n    # What it is.\n\n    """A.\n\n    {}\n    """\n'),
    ],
    ids=[
        *("c++", "behind-code", "c", "proto", "build", "shell", "python", "behind-python"),
        *("docstring", "later-line-of-docstring"),
    ],
)
def test_comments_and_docstrings_have_100_columns(path: str, text: str) -> None:
    def filled(columns: int) -> str:
        (line,) = [line for line in text.splitlines() if "{}" in line]
        return text.replace("{}", "x" * (columns - len(line) + 2))

    assert complaints(path, filled(100)) == []
    (found,) = complaints(path, filled(101))
    assert "101 columns, more than 100" in found


def test_prose_of_markdown_has_100_columns() -> None:
    long = "word " * 20 + "w"
    assert complaints("a/README.md", f"{long[:100]}\n- {long[:98]}\n") == []
    (found,) = complaints("a/README.md", f"- {long}\n")
    assert "103 columns, more than 100" in found
    for allowed in (f"| {long} |", f"    {long}", f"```\n{long}\n```", "- " + "w" * 101):
        assert complaints("a/README.md", allowed + "\n") == []


def test_python_code_is_as_wide_as_its_formatter_makes_it() -> None:
    for path, begin in (("tests/a.py", ""), ("tests/a", "#!/usr/bin/env python3\n")):
        assert complaints(path, begin + "a = " + "1" * 106 + "\n") == []
    (found,) = complaints("tests/a.py", "a = " + "1" * 107 + "\n")
    assert "111 columns, more than 110" in found
    assert complaints("tests/a.py", "a = " + "1" * 106 + "  # type: ignore[misc]\n") == []


def test_the_width_of_python_code_is_that_which_its_formatter_is_told() -> None:
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert settings["tool"]["ruff"]["line-length"] == file_rules.MAX_PYTHON_CODE_COLUMNS


def test_text_that_cannot_be_broken_may_be_wide() -> None:
    assert complaints("README.md", "x" * 300 + "\n") == []
