"""The wheel is put together as installers want it, and the same every time."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAME = "ringd-1.2.3-cp310-abi3-manylinux_2_34_x86_64.whl"


@pytest.fixture(scope="module")
def assemble() -> ModuleType:
    spec = importlib.util.spec_from_file_location("assemble_wheel", ROOT / "client/python/assemble_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    (tmp_path / "version.h").write_text('inline constexpr char kLibraryVersion[] = "1.2.3";\n')
    (tmp_path / "README.md").write_text("# words\n")
    (tmp_path / "module.py").write_text("x = 1\n")
    (tmp_path / "library").write_bytes(bytes(range(256)) * 100)
    return [
        str(tmp_path / "version.h"),
        str(tmp_path / "README.md"),
        f"{tmp_path / 'module.py'}=ringd/__init__.py",
        f"{tmp_path / 'library'}=ringd/libringd.so.1",
        f"{tmp_path / 'README.md'}=licenses/words",
    ]


def test_the_same_files_give_the_same_bytes(assemble: ModuleType, inputs: list[str], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    assemble.main([str(tmp_path / "a" / NAME), *inputs])
    assemble.main([str(tmp_path / "b" / NAME), *inputs[:2], *reversed(inputs[2:])])
    assert (tmp_path / "a" / NAME).read_bytes() == (tmp_path / "b" / NAME).read_bytes()


def test_the_record_lists_every_file_with_its_digest(
    assemble: ModuleType, inputs: list[str], tmp_path: Path
) -> None:
    assemble.main([str(tmp_path / NAME), *inputs])
    with zipfile.ZipFile(tmp_path / NAME) as wheel:
        names = set(wheel.namelist())
        record = "ringd-1.2.3.dist-info/RECORD"
        rows = {row[0]: row[1:] for row in csv.reader(wheel.read(record).decode().splitlines())}
        assert rows.keys() == names
        assert rows.pop(record) == ["", ""]
        for name, (digest, size) in rows.items():
            content = wheel.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={expected}", str(len(content)))
        assert "ringd-1.2.3.dist-info/licenses/words" in names
        metadata = wheel.read("ringd-1.2.3.dist-info/METADATA").decode()
        assert "Version: 1.2.3\n" in metadata
        for package in ("torch", "cloudpickle"):
            assert re.search(rf'^Requires-Dist: {package}>=\S+; extra == "torch"$', metadata, re.MULTILINE)
        assert metadata.endswith("\n\n# words\n")
        assert "Tag: cp310-abi3-manylinux_2_34_x86_64\n" in wheel.read("ringd-1.2.3.dist-info/WHEEL").decode()


def test_a_name_of_another_version_is_refused(
    assemble: ModuleType, inputs: list[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=r"ringd-1\.2\.3"):
        assemble.main([str(tmp_path / NAME.replace("1.2.3", "9.9.9")), *inputs])


def test_the_built_wheel_is_what_its_name_says() -> None:
    """One for every CPython from 3.10 on, and for the C libraries that auditwheel takes it for."""
    (built,) = (ROOT / "dist").glob("ringd-*.whl")
    tag = re.fullmatch(r"ringd-[0-9.]+-cp310-abi3-(manylinux_\d+_\d+_x86_64)\.whl", built.name)
    assert tag, f"{built.name} is not for the stable ABI and manylinux"
    result = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(built)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    words = " ".join(result.stdout.split())
    assert f'is consistent with the following platform tag: "{tag[1]}"' in words, (
        result.stdout + result.stderr
    )
