"""The processes of all contestants on one site: started when first wanted, kept while the site
lives."""

from __future__ import annotations

from collections.abc import Callable

from .peers.peer import Peer, Unavailable
from .session import PeerError, Session, control_folder
from .site import Site


class Contestants:
    """Owns the sessions. Thread safety: one thread."""

    def __init__(self, site: Site, peers: dict[str, Peer], say: Callable[[str], None]) -> None:
        self._site = site
        self._peers = peers
        self._say = say
        self._sessions: dict[tuple[str, str], Session] = {}
        self._broken: dict[tuple[str, str], str] = {}

    def session(self, contestant: str, configuration: str) -> Session:
        """The running processes of one contestant's configuration. Raises PeerError; a
        configuration that could not be started is not tried again."""
        key = (contestant, configuration)
        if key in self._broken:
            raise PeerError(self._broken[key])
        if key not in self._sessions:
            try:
                self._sessions[key] = self._start(contestant, configuration)
            except PeerError as error:
                self._broken[key] = str(error)
                raise
        return self._sessions[key]

    def _start(self, contestant: str, configuration: str) -> Session:
        # "ringd, no fusion" is ringd once more, under other settings.
        peer = self._peers.get(contestant.split(",")[0])
        if peer is None:
            raise PeerError(f"{contestant}: not available")
        ranks = self._site.topology.ranks
        folder = control_folder(ranks)
        try:
            launches = peer.launches(configuration, self._site, folder)
        except Unavailable as reason:
            raise PeerError(f"{contestant}: {reason}") from reason
        session = Session(f"{contestant} {configuration}", folder, ranks, launches, peer.never_idle)
        try:
            session.ready(peer.start_seconds())
        except BaseException:
            session.stop()
            raise
        return session

    def versions(self) -> dict[str, str]:
        """What the running contestants say of themselves."""
        return {contestant: session.version for (contestant, _), session in self._sessions.items()}

    def stop_one(self, contestant: str, configuration: str) -> None:
        session = self._sessions.pop((contestant, configuration), None)
        if session is not None:
            session.stop()

    def stop(self) -> None:
        """Ends all processes. Idempotent."""
        for contestant, configuration in list(self._sessions):
            self.stop_one(contestant, configuration)
