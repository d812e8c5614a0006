"""The check of sums in control.h, compiled and run for every element type."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from harness.paths import DRIVERS

PROGRAM = r"""
#define _GNU_SOURCE
#include "control.h"
int main(int argc, char** argv) {
  const char* dtype = argv[1];
  const int size = atoi(argv[2]);
  unsigned char buffer[64] = {0};
  unsigned sums[2] = {0, 0};
  (void)argc;
  for (int rank = 0; rank < size; ++rank) {
    sums[0] += ContributionAt(rank, 0);
    sums[1] += ContributionAt(rank, 1);
  }
  const size_t width = ElementBytes(dtype);
  for (size_t i = 0; i < 8; ++i) {
    const uint32_t bits = EncodeInteger(dtype, sums[i % 2]);
    memcpy(buffer + i * width, &bits, width);
  }
  if (!HoldsSum(buffer, dtype, size, 8)) return 1;
  buffer[3 * width] ^= 1;
  if (HoldsSum(buffer, dtype, size, 8)) return 2;
  printf("%x\n", EncodeInteger(dtype, 3));
  return 0;
}
"""
THREE = {"f32": "40400000", "f16": "4200", "bf16": "4040", "f8e4m3": "44", "f8e5m2": "42"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    source = folder / "sums.c"
    source.write_text(PROGRAM, encoding="ascii")
    command = ["gcc", "-std=gnu11", f"-I{DRIVERS}", "-o", str(folder / "sums"), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return folder / "sums"


@pytest.mark.parametrize("dtype", THREE)
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_right_sums_pass_and_a_flipped_bit_does_not(program: Path, dtype: str, ranks: int) -> None:
    command = [str(program), dtype, str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0
    assert done.stdout.strip() == THREE[dtype]
