"""The systemd unit and its companions: what systemd's own checkers say of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "deploy" / "systemd"
MAX_EXPOSURE = 2.5


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with programs that exist wherever the tests run."""
    text = (SOURCE / "ringd.service").read_text()
    assert "ExecStart=/usr/bin/ringd\n" in text
    copy = tmp_path / "ringd.service"
    copy.write_text(text.replace("/usr/bin/ringd", "/bin/true"))
    return copy


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def complaints_about(unit: Path) -> list[str]:
    """What verify says of this unit; it also speaks of others that the machine has, and ends with
    0."""
    result = analyze("verify", "--man=no", str(unit))
    return [line for line in result.stderr.splitlines() if unit.name in line]


def test_verify_has_nothing_to_say(unit: Path) -> None:
    assert complaints_about(unit) == []


def test_verify_has_nothing_to_say_of_mps(tmp_path: Path) -> None:
    text = (SOURCE / "ringd-mps.service").read_text()
    assert "ExecStart=/usr/bin/nvidia-cuda-mps-control " in text
    copy = tmp_path / "ringd-mps.service"
    copy.write_text(text.replace("/usr/bin/nvidia-cuda-mps-control", "/bin/true"))
    assert complaints_about(copy) == []


def test_ringd_and_mps_name_one_folder_and_mps_is_there_first() -> None:
    ringd, mps = ((SOURCE / name).read_text().splitlines() for name in ("ringd.service", "ringd-mps.service"))
    folder = "Environment=CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps"
    assert folder in ringd
    assert folder in mps
    assert "RuntimeDirectory=nvidia-mps" in mps
    assert "Before=ringd.service" in mps


def test_verify_would_notice_an_unknown_setting(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    assert complaints_about(unit) != []


def install(folder: Path, *arguments: str) -> str:
    """What it says when it installs into this folder."""
    return subprocess.run(
        [SOURCE / "install", *arguments],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DESTDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_what_the_unit_names_is_what_is_installed(tmp_path: Path) -> None:
    install(tmp_path)
    unit = (tmp_path / "usr/lib/systemd/system/ringd.service").read_text()
    named = re.findall(r"^Documentation=file:(?://)?(\S+)$", unit, re.MULTILINE)
    # `kill` for a reload is the system's (the package procps).
    named += re.findall(r"^Exec\w+=(/usr/bin/ring\S+)", unit, re.MULTILINE)
    named.append("/usr/bin/ringd-engine")  # ringd starts it
    assert len(named) >= 3
    for path in named:
        assert (tmp_path / path.lstrip("/")).is_file(), path
    # All that the README's table names.
    table = (SOURCE / "README.md").read_text().partition("A node needs")[0]
    listed = re.findall(r"`(/(?:usr|etc)/[^`]+\.[^`]+)`", table)
    assert len(listed) >= 6
    for path in listed:
        assert (tmp_path / path.lstrip("/")).is_file(), path


def test_installing_again_keeps_key_and_configuration(tmp_path: Path) -> None:
    install(tmp_path, "--peer-interface", "eth0")
    toml, key = tmp_path / "etc/ringd/ringd.toml", tmp_path / "etc/ringd/cluster.key"
    assert toml.read_text().endswith('cluster_key_file = "/etc/ringd/cluster.key"\npeer_interface = "eth0"\n')
    assert re.fullmatch("[0-9a-f]{64}\n", key.read_text())
    assert key.stat().st_mode & 0o777 == 0o600
    toml.write_text("max_sessions = 17\n")
    before = key.read_text()
    program = tmp_path / "usr/bin/ringd-engine"
    former = program.stat().st_ino
    said = install(tmp_path, "--peer-interface", "eth1")
    assert "kept" in said
    assert "cluster_key_file is not set there" in said
    assert (toml.read_text(), key.read_text()) == ("max_sessions = 17\n", before)
    # Another file: what runs is the former one.
    assert program.stat().st_ino != former
    assert not list(tmp_path.rglob("*.new"))


def test_engines_die_with_ringd_and_not_ringd_with_an_engine() -> None:
    lines = (SOURCE / "ringd.service").read_text().splitlines()
    for wanted in ("KillMode=mixed", "OOMPolicy=continue", "TasksMax=8192"):
        assert wanted in lines


def test_the_start_waits_for_links_and_nothing_before_it_fails_for_them() -> None:
    """link_timeout is ringd's own; `--check-config` looks once."""
    lines = (SOURCE / "ringd.service").read_text().splitlines()
    assert not [line for line in lines if line.startswith(("ExecStartPre=", "ExecCondition="))]
    assert "RestartPreventExitStatus=2" in lines


def test_exposure_stays_low(unit: Path) -> None:
    result = analyze("security", "--offline=true", "--no-pager", str(unit))
    match = re.search(r"exposure level for ringd\.service: ([0-9.]+)", result.stdout)
    assert match, result.stdout + result.stderr
    assert float(match.group(1)) <= MAX_EXPOSURE


def test_sysusers_and_tmpfiles_are_understood(tmp_path: Path) -> None:
    users = subprocess.run(
        ["systemd-sysusers", "--dry-run", f"--root={tmp_path}", str(SOURCE / "ringd.sysusers")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert users.returncode == 0, users.stderr
    assert "Creating user 'ringd'" in users.stderr
    # Only the folder of root can be made in a tree without ringd's user.
    line = next(line for line in (SOURCE / "ringd.tmpfiles").read_text().splitlines() if "/etc/ringd" in line)
    entries = tmp_path / "ringd.conf"
    entries.write_text(line + "\n")
    folders = subprocess.run(
        ["systemd-tmpfiles", "--create", f"--root={tmp_path}", str(entries)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert folders.returncode == 0, folders.stderr
    assert (tmp_path / "etc" / "ringd").is_dir()
