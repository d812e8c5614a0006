"""The clang-tidy step: what it looks at again, and that its checks are switched on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.lint.clang_tidy import CLANG_FLAGS, Unit, check_group, forget_unused, included_files
from tests.lint.source_tree import SourceTree
from tests.lint.tools import VENV_BIN

ROOT = Path(__file__).resolve().parents[2]


def test_a_unit_depends_on_the_headers_of_its_headers(tmp_path: Path) -> None:
    for name, text in {
        "a.cc": '#include "b.h"\n#include <vector>\n#include "gone.h"\n',
        "b.h": '#include "c.h"\n#include "d.grpc.pb.h"\n',
        "c.h": '#include "b.h"\n',
        "d.proto": 'import "e.proto";\n',
        "e.proto": "",
        "other.h": "",
    }.items():
        (tmp_path / name).write_text(text)

    reached = included_files(tmp_path, Path("a.cc"))

    assert {str(path) for path in reached} == {"a.cc", "b.h", "c.h", "d.proto", "e.proto"}


def test_states_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    for name, last_of_use in {"old": 1000, "new": 3000}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (last_of_use, last_of_use))

    forget_unused(tmp_path, 2000)

    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("code", "check"),
    [
        (
            '#include "proto/base/mutex.h"\n'
            "class A {\n"
            " public:\n"
            "  int Get() { return x_; }\n"
            " private:\n"
            "  ringd::Mutex mutex_;\n"
            "  int x_ ABSL_GUARDED_BY(mutex_) = 0;\n"
            "};\n"
            "int Use() { A a; return a.Get(); }\n",
            "clang-diagnostic-thread-safety-analysis",
        ),
        ("int BadName(int x) { int camelCase = x; return camelCase; }\n", "readability-identifier-naming"),
        ("struct A { A(int x) : x(x) {} int x; };\n", "google-explicit-constructor"),
    ],
    ids=["thread-safety", "naming", "explicit"],
)
def test_a_violation_is_an_error(tmp_path: Path, code: str, check: str) -> None:
    source = tmp_path / "a.cc"
    source.write_text(code)
    command = [str(VENV_BIN / "clang-tidy"), f"--config-file={ROOT}/.clang-tidy", str(source), "--"]

    result = subprocess.run(
        [*command, "-std=c++20", "-iquote", str(ROOT), *CLANG_FLAGS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode != 0
    assert check in result.stdout


def test_a_complaint_in_a_group_is_told_of_its_unit(tmp_path: Path) -> None:
    (tmp_path / ".clang-tidy").write_bytes((ROOT / ".clang-tidy").read_bytes())
    (tmp_path / "good.cc").write_text("int Good(int x) { return x; }\n")
    (tmp_path / "bad.cc").write_text("int Bad(int x) { int camelCase = x; return camelCase; }\n")
    units = [Unit(Path(name), ("-std=c++20",), ()) for name in ("good.cc", "bad.cc")]
    states = {unit: tmp_path / f"{unit.source}.clean" for unit in units}

    found = check_group(SourceTree(tmp_path), units, states)

    assert [line.split(":")[0] for line in found] == ["bad.cc"]
    assert [states[unit].exists() for unit in units] == [True, False]


def test_a_group_without_complaint_is_looked_at_once(tmp_path: Path) -> None:
    (tmp_path / ".clang-tidy").write_bytes((ROOT / ".clang-tidy").read_bytes())
    (tmp_path / "a.cc").write_text("int A() { return 1; }\n")
    (tmp_path / "b.cc").write_text("int B() { return A(); }\n")  # alone it would not compile
    units = [Unit(Path(name), ("-std=c++20",), ()) for name in ("a.cc", "b.cc")]
    states = {unit: tmp_path / f"{unit.source}.clean" for unit in units}

    assert check_group(SourceTree(tmp_path), units, states) == []
    assert all(state.exists() for state in states.values())
