"""Which units are looked at together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.unit_groups import defined_names, groups


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("int Count(int from) {", {"Count"}),
        ("std::vector<int> Sizes(std::span<const int> of) {", {"Sizes"}),
        ("constexpr std::chrono::milliseconds kLimit{5};", {"kLimit"}),
        ("thread_local int depth = 0;", {"depth"}),
        ("char buffer[64];", {"buffer"}),
        ("using Clock = std::chrono::steady_clock;", {"Clock"}),
        ("enum class Kind { kFirst };", {"Kind"}),
        ("class Reader : public Source {", {"Reader"}),
        ("struct Case {", {"Case"}),
        # Defined elsewhere, or only within.
        ("void Reader::Read(int size = 0) {", set()),
        ("Reader::Reader(int size) : size_(size) {}", set()),
        ("  int within = 0;", set()),
        ("using std::vector;", set()),
        # Catch2 gives each a name of its own.
        ('TEST_CASE("Reader: reads") {', set()),
        ("namespace ringd::door {", set()),
        ("namespace {", set()),
    ],
)
def test_names_are_found(line: str, names: set[str]) -> None:
    assert defined_names(f"#include <vector>\n\n{line}\n") == names


def grouped(texts: dict[str, str], size: int, headers: dict[str, list[str]] | None = None) -> list[list[str]]:
    paths = {Path(name): text for name, text in texts.items()}
    found = groups(paths, {path: (headers or {}).get(path.name, []) for path in paths}, size)
    return sorted([path.name for path in group] for group in found)


def test_those_that_define_the_same_are_apart() -> None:
    texts = {"a.cc": "int Same() {\n", "b.cc": "int Same() {\n", "c.cc": "int Other() {\n"}

    assert grouped(texts, 3) == [["a.cc", "c.cc"], ["b.cc"]]


def test_one_that_defines_what_a_header_of_another_has_is_apart() -> None:
    texts = {"a.cc": "struct Node {\n", "b.cc": "int F() {\n", "c.cc": "int G() {\n"}

    assert grouped(texts, 3, {"b.cc": ["class Node {\n"]}) == [["a.cc", "c.cc"], ["b.cc"]]
    assert grouped(texts, 3, {"a.cc": ["class Node;\n"], "b.cc": ["class Node {\n"]}) == [
        ["a.cc", "b.cc", "c.cc"]
    ]


def test_a_group_is_no_larger_than_said() -> None:
    texts = {f"{number}.cc": f"int F{number}() {{\n" for number in range(5)}

    assert [len(group) for group in grouped(texts, 2)] == [2, 2, 1]


@pytest.mark.parametrize("directive", ["#define A 1", "#undef A", "#pragma GCC poison a", "#  define A"])
def test_what_would_change_the_others_is_alone(directive: str) -> None:
    texts = {"a.cc": "int F() {\n", "b.cc": f"{directive}\n", "c.cc": "int G() {\n"}

    assert grouped(texts, 3) == [["a.cc", "c.cc"], ["b.cc"]]
