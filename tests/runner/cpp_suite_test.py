"""Counting the cases of test programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.cpp_suite import count_cases

PASSED = '<testcase name="a"/>'
FAILED = '<testcase name="b"><failure message="x"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "passed", "expected"),
    [
        (PASSED + PASSED, True, (2, 0)),
        (PASSED + FAILED, False, (1, 1)),
        # It crashed after the last case, or a sanitizer complained at exit.
        (PASSED + PASSED, False, (2, 1)),
    ],
    ids=["all-passed", "one-failed", "failed-outside-of-cases"],
)
def test_cases_are_counted_from_the_xml(
    tmp_path: Path, cases: str, passed: bool, expected: tuple[int, int]
) -> None:
    xml = tmp_path / "test.xml"
    xml.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert count_cases(xml, passed) == expected


@pytest.mark.parametrize(("passed", "expected"), [(True, (1, 0)), (False, (0, 1))])
def test_a_program_without_readable_xml_is_one_case(
    tmp_path: Path, passed: bool, expected: tuple[int, int]
) -> None:
    xml = tmp_path / "test.xml"
    xml.write_bytes(b"<testsuites><broken \xff")
    assert count_cases(xml, passed) == expected
    assert count_cases(tmp_path / "missing.xml", passed) == expected
