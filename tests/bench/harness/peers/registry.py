"""All contestants by name."""

from __future__ import annotations

from pathlib import Path

from .horovod import Horovod
from .intelmpi import IntelMpi
from .mpich import Mpich
from .openmpi import OpenMpi
from .peer import Peer, Say, Unavailable
from .ringd import Ringd, RingdBefore
from .torch_gloo import TorchGloo
from .training import Alone


def everyone() -> list[Peer]:
    """Those that a run may have, but another build of ringd."""
    return [Ringd(), OpenMpi(), Mpich(), IntelMpi(), TorchGloo(), Horovod(), Alone()]


def install_all(
    wanted: list[str], say: Say, may_install: bool, before: Path | None = None
) -> dict[str, Peer]:
    """The peers that are usable, made so where need be. One that is not is named, with the reason.
    `before`: a folder with another build of ringd, which is one of them; if it is of no use, raises
    Unavailable."""
    usable: dict[str, Peer] = {}
    if before is not None:
        other = RingdBefore(before)
        other.install(say, may_install)
        usable[other.name] = other
    for peer in everyone():
        # Whoever names contestants means the libraries: what computing takes is no contestant.
        if wanted and peer.name not in wanted and not isinstance(peer, Alone):
            continue
        try:
            peer.install(say, may_install)
            usable[peer.name] = peer
        except Unavailable as reason:
            say(f"without {peer.name}: {reason}")
    return usable
