"""Whether the ranks of a job that has lost one were told the truth, and soon."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.soak.jobs import SoakRank

#: Within this time every other rank of the job has heard.
WITHIN_S = 1.0


@dataclass(frozen=True)
class Death:
    """How a rank ended, and when. `code` as Popen.returncode: minus the signal's number."""

    rank: int
    pid: int
    code: int
    at: float
    #: How long a processor stood still meanwhile: nobody hears anything then.
    excused_s: float = 0.0


def untruths(text: str, death: Death) -> list[str]:
    """What an error says of a death that is not so, or does not say."""
    found = []
    if f"rank {death.rank}" not in text or f"pid {death.pid}" not in text:
        found.append(f"does not name rank {death.rank}, pid {death.pid}")
    for code in re.findall(r"exited with code (\d+)", text):
        if int(code) != death.code:
            found.append(f"says code {code}, it was {death.code}")
    for signal_number in re.findall(r"signal (\d+)", text):
        if -int(signal_number) != death.code:
            found.append(f"says signal {signal_number}, it was {death.code}")
    if "before all ranks" in text:
        found.append("says that the job had not begun")
    return found


def complaints(
    death: Death, survivors: Sequence[SoakRank], errors: Sequence[dict[str, Any] | None]
) -> list[str]:
    """What is wrong with what the survivors heard, each in `errors`."""
    found = []
    for rank, error in zip(survivors, errors, strict=True):
        if error is None:
            found.append(f"{rank} heard nothing of the death of rank {death.rank} (pid {death.pid})")
            continue
        late = error["at"] - death.at - death.excused_s
        if late > WITHIN_S:
            found.append(f"{rank} heard of the death of rank {death.rank} after {late:.2f} s")
        found += [f"{rank}: the error {what}: {error['text']}" for what in untruths(error["text"], death)]
    texts = {error["text"] for error in errors if error is not None}
    if len(texts) > 1:
        found.append("the survivors heard different words: " + " / ".join(sorted(texts)))
    return found
