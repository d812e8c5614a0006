"""Starts a contestant's processes, as an MPI's launcher does: all in its own session and process
group.

The kernel shares processors among sessions, and a process that yields lets those of its own session
pass (autogroup, sched(7)). With a session for each process the ranks of some contestants could not
have yielded to each other.

Standard input: a JSON list of {"argv", "environment"}; the one argument: the descriptor for their
output. Prints the exit status of each process as it ends, negative for a signal; ends with the last
of them. SIGTERM is for them, not for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

NOT_STARTED = 127


def main() -> None:
    # A handler, unlike being ignored, is not inherited.
    signal.signal(signal.SIGTERM, lambda *_: None)
    log = int(sys.argv[1])
    running: dict[int, subprocess.Popen[bytes]] = {}
    for launch in json.load(sys.stdin):
        try:
            process = subprocess.Popen(
                launch["argv"],
                env={**os.environ, **launch["environment"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            os.write(log, f"{launch['argv'][0]}: {error}\n".encode())
            print(NOT_STARTED, flush=True)
            continue
        running[process.pid] = process
    while running:
        pid, status = os.wait()
        if running.pop(pid, None) is not None:
            print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
