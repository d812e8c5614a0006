"""Runs the door's fuzz target for a bounded time, from the corpus that is kept here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("door_handshake", "door_key", "door_message", "hmac", "secure_random")
SECONDS = int(os.environ.get("RINGD_FUZZ_SECONDS", "15"))


@pytest.mark.timeout(240 + SECONDS)
def test_the_door_s_handshake_stands_what_a_fuzzer_finds(tmp_path: Path) -> None:
    target = tmp_path / "door_fuzzer"
    flags = ["-std=c++20", "-O1", "-g1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    sources = [str(ROOT / "proto/door" / f"{name}.cc") for name in SOURCES]
    libraries = ["-labsl_strings", "-labsl_raw_logging_internal", "-lcrypto"]
    command = [
        "clang++-14",
        *flags,
        f"-I{ROOT}",
        str(ROOT / "tests/fuzz/door_fuzzer.cc"),
        *sources,
        *libraries,
    ]
    subprocess.run([*command, "-o", str(target)], check=True, timeout=100)
    corpus = tmp_path / "corpus"
    shutil.copytree(ROOT / "tests/fuzz/corpus/door", corpus)
    limits = [
        f"-max_total_time={SECONDS}",
        "-max_len=600",
        "-timeout=20",
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
    ]
    done = subprocess.run(
        [str(target), *limits, f"-artifact_prefix={tmp_path}/", str(corpus)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60 + SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    runs = next(line for line in done.stderr.splitlines() if "number_of_executed_units" in line)
    assert int(runs.rsplit(maxsplit=1)[1]) > 1000, runs
