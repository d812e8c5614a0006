"""Whether ranks do the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ringd.torch.allreduce import Max, allreduce
from ringd.torch.digest import digest_of
from ringd.torch.process_set import ProcessSet


def are_equal_on_all(words: Sequence[str], name: str, process_set: ProcessSet) -> bool:
    """Whether these are the same words on all ranks of the set; blocks until they have asked under
    this name, too."""
    own = digest_of("\0".join(words))
    both = torch.tensor([own, -own], dtype=torch.int64, device="cpu")
    most, least = allreduce(both, name=name, op=Max, process_set=process_set).tolist()
    return most == -least
