"""Rules about whole files: size, names, include guards, white space."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.lint.source_tree import CPP_SUFFIXES, SourceTree

# House style looks for a second idea in a file of 400 lines; at this size there is one.
MAX_LINES = 500
MAX_COLUMNS = 100
# As wide as ruff makes Python's code (pyproject.toml); its comments and docstrings are no wider
# than all the rest.
MAX_PYTHON_CODE_COLUMNS = 110
# What tools are told at the end of a line because they look nowhere else; it does not count.
DIRECTIVE = re.compile(r"  # (type: ignore|noqa)\b.*$")
CODE_SUFFIXES = CPP_SUFFIXES | {".py", ".sh", ".proto", ".bzl", ""}
# Names that say nothing about what is inside.
EMPTY_NAMES = frozenset({"util", "utils", "common", "helper", "helpers", "manager", "misc"})
# Files whose lines can't be broken, or aren't ours.
LONG_LINES_ALLOWED = re.compile(r"\.(csv|json|svg|txt|service|conf)$|^LICENSE$|/data/")


def check(tree: SourceTree) -> list[str]:
    """One line for each rule that a file breaks."""
    return [problem for path in tree.files for problem in check_file(path, _text(tree, path))]


def _text(tree: SourceTree, path: Path) -> str:
    """The file's text; empty for one that isn't text, as the inputs of a fuzzer."""
    if "corpus" in path.parts:
        return ""
    try:
        return tree.read(path)
    except UnicodeDecodeError:
        return ""


def check_file(path: Path, text: str) -> Iterator[str]:
    lines = text.splitlines()
    if path.stem in EMPTY_NAMES:
        yield f"{path}: the name says nothing about what is inside"
    if path.suffix in CODE_SUFFIXES and path.name != "LICENSE" and len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines, more than {MAX_LINES}: split it by its ideas"
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at the end"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() and path.suffix != ".md":
            yield f"{path}:{number}: white space at the end of the line"
        if "\t" in line and path.suffix in CPP_SUFFIXES:
            yield f"{path}:{number}: a tab"
    if path.suffix == ".md":
        yield from _check_markdown_columns(path, lines)
    elif not LONG_LINES_ALLOWED.search(path.as_posix()):
        yield from _check_columns(path, text, lines)
    if path.suffix == ".h" or path.suffix == ".hpp":
        yield from _check_guard(path, lines)


# Copies of headers as they were released, which keep their guards and their lines.
RELEASED = Path("tests/client/released")


def _check_columns(path: Path, text: str, lines: list[str]) -> Iterator[str]:
    columns = [len(DIRECTIVE.sub("", line)) for line in lines]
    if max(columns, default=0) <= MAX_COLUMNS or path.parent == RELEASED:
        return
    is_python = path.suffix in {".py", ".pyi"} or re.match(r"#!.*python", text)
    prose = _python_prose(text) if is_python else range(1, len(lines) + 1)
    for number, width in enumerate(columns, 1):
        limit = MAX_COLUMNS if number in prose else MAX_PYTHON_CODE_COLUMNS
        if width > limit:
            yield f"{path}:{number}: {width} columns, more than {limit}"


def _check_markdown_columns(path: Path, lines: list[str]) -> Iterator[str]:
    """Of prose: a table's row is one line, and code is as wide as it is."""
    in_code = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        may_be_long = in_code or line.lstrip().startswith("|") or line.startswith("    ")
        # What can't be broken, such as a link, stands on a line of its own.
        if len(line) > MAX_COLUMNS and not may_be_long and " " in line.strip(" -"):
            yield f"{path}:{number}: {len(line)} columns, more than {MAX_COLUMNS}"


def _python_prose(text: str) -> set[int]:
    """The numbers of lines with a comment or a part of a docstring; none in what is not Python."""
    prose: set[int] = set()
    begins = True  # a statement
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_docstring = begins and token.type == tokenize.STRING
            is_comment = token.type == tokenize.COMMENT and not DIRECTIVE.match(f"  {token.string}")
            if is_docstring or is_comment:
                prose.update(range(token.start[0], token.end[0] + 1))
            if token.type not in {tokenize.COMMENT, tokenize.NL}:
                begins = token.type in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    except (tokenize.TokenError, SyntaxError):
        return set()  # ruff says where
    return prose


def _check_guard(path: Path, lines: list[str]) -> Iterator[str]:
    if path.stem.endswith("-inl"):
        return  # included several times on purpose (Google Highway)
    if path.parent == RELEASED:
        return
    guard = "RINGD_" + re.sub(r"[^A-Za-z0-9]", "_", path.as_posix()).upper() + "_"
    directives = [line.strip() for line in lines if line.lstrip().startswith("#")]
    if directives[:2] != [f"#ifndef {guard}", f"#define {guard}"]:
        yield f"{path}: the include guard is not {guard}"
