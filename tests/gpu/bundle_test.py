"""A bundle has what another machine lacks, and not more than it may."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.gpu.harness import bundle as bundles
from tests.gpu.harness.bundle import Bundle, BundleError


def test_a_bundle_over_the_limit_is_refused_with_its_largest_files_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    with pytest.raises(BundleError, match=r"more than 8\.0 MiB; largest: libringd\.so\.1"):
        bundles.make(folder, limit_bytes=8 << 20)
    assert not folder.exists()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("for years")
    with pytest.raises(BundleError, match="something else"):
        bundles.make(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_programs_take_no_library_from_elsewhere_but_the_c_and_cpp_ones(tmp_path: Path) -> None:
    bundle = bundles.make(tmp_path / "bundle")
    assert bundle.size() <= bundles.LIMIT_BYTES
    assert bundle.version().startswith("ringd ")
    for program in bundles.PROGRAMS:
        listed = subprocess.run(
            ["ldd", bundle.folder / "programs" / program],
            env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(bundle.folder / "lib")},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        for line in listed.stdout.splitlines():
            name, arrow, place = line.strip().partition(" => ")
            if not bundles.OWN_LIBRARIES.match(name) and not name.startswith("/"):
                assert arrow, line
                assert place.startswith(f"{bundle.folder}/lib/"), line


def test_the_versions_that_it_needs_are_read_from_the_files(tmp_path: Path) -> None:
    needs = bundles.make(tmp_path / "bundle").needs()
    assert set(needs) == {"GLIBC", "GLIBCXX"}
    assert all(part.isdigit() for version in needs.values() for part in version.split("."))


def test_a_machine_where_ringd_does_not_start_hears_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ringd"
    program.write_text("#!/bin/sh\necho 'libm.so.6: version GLIBC_9.9 not found' >&2\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / "bundle.json").write_text('{"needs": {"GLIBC": "9.9"}}')
    with pytest.raises(BundleError, match=r"GLIBC_9\.9 not found \(it needs GLIBC 9\.9 or later\)"):
        Bundle(tmp_path).version()
