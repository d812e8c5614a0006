"""Another build of ringd as a contestant."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.command_line import main
from harness.peers.peer import Unavailable
from harness.peers.ringd import RingdBefore
from harness.suite_run import ROWS, of_the_available

NEEDED = ("ringd", "ringd-engine", "ringd_driver")


def test_it_does_what_the_present_one_does() -> None:
    for rows in ROWS.values():
        for row in rows():
            with_it = of_the_available(row, {"ringd", "before"})
            assert with_it.ways["before"] == row.ways["ringd"]
            assert with_it.goals == row.goals
            assert "before" not in of_the_available(row, {"ringd"}).ways


@pytest.mark.parametrize("missing", NEEDED)
def test_a_folder_without_its_programs_is_refused(tmp_path: Path, missing: str) -> None:
    for name in NEEDED:
        (tmp_path / name).touch(mode=0o755)
    RingdBefore(tmp_path).install(print, may_install=True)
    (tmp_path / missing).unlink()
    with pytest.raises(Unavailable, match=f"{missing} is not built"):
        RingdBefore(tmp_path).install(print, may_install=True)


def test_the_command_line_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    arguments = ["wire", "--peers", "ringd", "--no-install", "--before", str(tmp_path)]
    assert main(arguments) == 1
    assert f"{tmp_path}/ringd is not built" in capfd.readouterr().err
