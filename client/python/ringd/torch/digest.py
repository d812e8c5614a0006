"""A number that stands for words, so that ranks can compare what they ask for."""

from __future__ import annotations

import hashlib


def digest_of(words: str) -> int:
    """56 bits: its negative fits an int64, too."""
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=7).digest(), "little")
