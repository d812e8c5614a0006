"""Counting the cases of test programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.cpp_suite import Cases, count_cases

PASSED = '<testcase name="a"/>'
SKIPPED = '<testcase name="c"><skipped message="needs root"/></testcase>'
FAILED = '<testcase name="b"><failure message="x"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "passed", "expected"),
    [
        (PASSED + PASSED, True, Cases(2, 0)),
        (PASSED + FAILED, False, Cases(1, 1)),
        (PASSED + SKIPPED, True, Cases(1, 0, ("c: needs root",))),
        (SKIPPED, True, Cases(0, 0, ("c: needs root",))),
        (PASSED + SKIPPED + FAILED, False, Cases(1, 1, ("c: needs root",))),
        # It crashed after the last case, or a sanitizer complained at exit.
        (PASSED + PASSED, False, Cases(2, 1)),
    ],
    ids=["all-passed", "one-failed", "one-skipped", "all-skipped", "all-three", "failed-outside-of-cases"],
)
def test_cases_are_counted_from_the_xml(tmp_path: Path, cases: str, passed: bool, expected: Cases) -> None:
    xml = tmp_path / "test.xml"
    xml.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert count_cases(xml, passed) == expected


@pytest.mark.parametrize(("passed", "expected"), [(True, Cases(1, 0)), (False, Cases(0, 1))])
def test_a_program_without_readable_xml_is_one_case(tmp_path: Path, passed: bool, expected: Cases) -> None:
    xml = tmp_path / "test.xml"
    xml.write_bytes(b"<testsuites><broken \xff")
    assert count_cases(xml, passed) == expected
    assert count_cases(tmp_path / "missing.xml", passed) == expected
