"""Horovod's key-value store, through which its ranks find each other: `horovod_rendezvous.py PORT`.

`horovodrun` starts one too, but reaches other nodes by ssh only. Serves until it is ended.
"""

from __future__ import annotations

import sys

from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer


def main() -> int:
    server = RendezvousHTTPServer(("", int(sys.argv[1])), RendezvousHandler, 0)
    server.init([])
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
