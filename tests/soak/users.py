"""The users of the soak. All are Debian's own, which every machine has; none is root."""

from __future__ import annotations

import pwd

#: Whose ringd is.
RINGD = "proxy"
#: Whose jobs must notice nothing.
TRAINERS = ("games", "news")
#: Admitted, too; attacks.
HOSTILE = "uucp"
ROOT = "root"


def becoming(user: str) -> list[str]:
    """What is put before a command to run it as this user; the pid stays."""
    if user == ROOT:
        return []
    entry = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]
