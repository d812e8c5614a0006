"""What README says of environments: `deploy/env`, the wheel in `dist/`, `pip install .`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def shell(name: str, script: str, home: Path) -> str:
    """What the script prints in a shell that has nothing but the system's programs on PATH."""
    result = subprocess.run(
        [name, "-euc", f"cd {shlex.quote(str(ROOT))}\n{script}"],
        env={"PATH": PATH, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", ["bash", "dash"])
def test_env_makes_readmes_commands_work(name: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch, ringd.torch as hvd\nhvd.init()\nprint('ranks:', hvd.size())\n")
    script = f"""
        eval "$(deploy/env)"
        "$RINGD_PYTHON" -c 'import ringd'
        command -v torchrun
        ringctl run -n 2 --no-prefix -- python {shlex.quote(str(program))}
    """
    printed = shell(name, script, tmp_path).splitlines()
    assert printed[0] == str(ROOT / ".venv/bin/torchrun")
    assert printed[1:] == ["ranks: 2", "ranks: 2"]


@pytest.mark.parametrize("name", ["bash", "dash"])
def test_env_puts_its_folders_first_and_once(name: str, tmp_path: Path) -> None:
    own = [str(ROOT / "bin"), str(ROOT / ".venv/bin")]
    script = f"""
        eval "$(deploy/env)"
        PATH={shlex.quote(str(tmp_path))}:$PATH:{shlex.quote(own[0])}
        eval "$(deploy/env)"
        echo "$PATH"
        echo "$VIRTUAL_ENV"
    """
    path, environment = shell(name, script, tmp_path).splitlines()
    assert path.split(":") == [*own, str(tmp_path), *PATH.split(":")]
    assert environment == str(ROOT / ".venv")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_env_tells_a_user_who_may_not_read_what_another_has_built() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ringd-env-") as name:
        tree = Path(name)
        tree.chmod(0o755)
        for folder in ("deploy", "bin", "built"):
            (tree / folder).mkdir()
        shutil.copy(ROOT / "deploy/env", tree / "deploy/env")
        for program in ("ringd", "ringd-engine", "ringctl"):
            (tree / "built" / program).touch(0o755)
            (tree / "bin" / program).symlink_to(tree / "built" / program)
        (tree / "built").chmod(0o700)
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        result = subprocess.run(
            [*become, tree / "deploy/env"], capture_output=True, text=True, timeout=60, check=False
        )
    assert result.returncode != 0
    assert "another user has built ringd" in result.stderr
    assert "pip install" in result.stderr


def test_readme_names_the_wheel_where_setup_puts_it() -> None:
    patterns = re.findall(
        r"^ +pip install (?:--\S+ )*(dist/\S+)", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert len(patterns) == 1
    assert len(list(ROOT.glob(patterns[0]))) == 1


def pip_install(target: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """`pip install .`, into a folder of its own. `path`: what it finds on PATH."""
    script = f'{"" if path is None else f"export PATH={shlex.quote(path)}; "}exec "$@"'
    command = [sys.executable, "-m", "pip", "install", f"--target={target}", "."]
    return subprocess.run(
        ["sh", "-c", script, "sh", *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_pip_install_of_the_tree_installs_what_bazel_builds(tmp_path: Path) -> None:
    result = pip_install(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = (ROOT / "dist").glob("ringd-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        built = archive.read("ringd/libringd.so.1")
    assert (tmp_path / "ringd/libringd.so.1").read_bytes() == built


def test_pip_install_without_bazel_says_in_one_line_what_to_run(tmp_path: Path) -> None:
    result = pip_install(tmp_path, path=str(tmp_path))
    assert result.returncode != 0
    lines = [line for line in (result.stdout + result.stderr).splitlines() if "ringd: " in line]
    assert len(lines) == 1, result.stdout + result.stderr
    assert "run `deploy/setup`" in lines[0]
    assert "`pip install dist/ringd-*.whl`" in lines[0]
