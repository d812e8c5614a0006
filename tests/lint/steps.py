"""What lint consists of, in the order in which it runs: the quick steps first."""

from __future__ import annotations

from collections.abc import Callable

from tests.lint import clang_tidy, file_rules, layers, operation_kinds, tools
from tests.lint.source_tree import SourceTree

# Each gives its complaints, one a line; none means that all is well.
STEPS: dict[str, Callable[[SourceTree], list[str]]] = {
    "file-rules": file_rules.check,
    "layers": layers.check,
    "operation-kinds": operation_kinds.check,
    "clang-format": tools.clang_format,
    "ruff-check": tools.ruff_check,
    "ruff-format": tools.ruff_format,
    "shellcheck": tools.shellcheck,
    "mypy": tools.mypy,
    # With clang's thread-safety analysis.
    "clang-tidy": clang_tidy.check,
}
