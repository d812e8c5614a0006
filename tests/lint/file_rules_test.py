"""Each rule about files must notice a file that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint import file_rules

GUARDED = "#ifndef RINGD_PROTO_A_H_\n#define RINGD_PROTO_A_H_\n#endif\n"


def complaints(path: str, text: str) -> list[str]:
    return list(file_rules.check_file(Path(path), text))


def test_a_good_header_passes() -> None:
    assert complaints("proto/a.h", "// What it is.\n" + GUARDED) == []


def test_a_released_header_keeps_its_guard() -> None:
    assert complaints("tests/client/released/ringd_1_2.h", GUARDED) == []


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
        ("daemon/a.cc", "//" + "x" * file_rules.MAX_COLUMNS + "\n", "columns"),
    ],
    ids=["wrong-guard", "no-guard", "name", "length", "last-line", "white-space", "tab", "columns"],
)
def test_a_broken_rule_is_named(path: str, text: str, expected: str) -> None:
    found = complaints(path, text)
    assert len(found) == 1
    assert expected in found[0]


def test_text_that_cannot_be_broken_may_be_wide() -> None:
    assert complaints("README.md", "x" * 300 + "\n") == []
