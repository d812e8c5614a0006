"""How a process that has a place in a job ends.

A program that comes to its end leaves its jobs in order. One that ends because of an exception must
not: the other ranks would take its silence for a choice and wait for it, or be told of nothing but
its absence. It abandons them, so that the others learn at once that this rank failed, and by which
exception. That happens already when the exception is reported, before Python waits for the
program's other threads: one of those may be waiting for a collective that will never come, and
abandoning ends that wait. An exception that ends a thread alone does not end the program, and is
not told.

A process that ``multiprocessing`` has started is no other.

``sys.exit`` with whatever code, and a death by a signal, need nothing: the first is an end in
order, whose code ringd tells the ranks of its node that wait for it all the same; the second ringd
sees itself.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from types import TracebackType
from typing import Protocol


class Place(Protocol):
    """What of ringd.Context is needed here."""

    def abandon(self, why: str) -> None: ...
    def close(self) -> None: ...


_contexts: weakref.WeakSet[Place] = weakref.WeakSet()
_watching_process = 0


def watch(context: Place) -> None:
    """Ends `context` as the process ends, if nobody has before."""
    global _watching_process
    _contexts.add(context)
    _note_handled()
    if _watching_process == 0:
        _previous_hooks.append(sys.excepthook)
        sys.excepthook = _on_uncaught
        atexit.register(_at_exit)
    if _watching_process != os.getpid():
        _watch_multiprocessing()
    _watching_process = os.getpid()


def _watch_multiprocessing() -> None:
    """A child that multiprocessing has forked ends without atexit, and in each kind of child it
    catches what ends the child."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None:
        return
    from multiprocessing import util

    util.Finalize(None, _at_end_of_child, exitpriority=0)


def _at_end_of_child() -> None:
    error = sys.exc_info()[1]
    if error is None:
        # As Python does before atexit: they may go on with the job.
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    if isinstance(error, SystemExit):
        # torch.multiprocessing.spawn ends a child so for what it has caught.
        error = error.__context__ if error.code not in (None, 0) else None
    _end_all("" if error is None else why_ended(type(error), error))


_previous_hooks: list = []
_handled = id(None)


def _interactive() -> bool:
    """At a prompt an uncaught exception is the end of a line, not of the program."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _on_uncaught(
    error_type: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    try:
        _previous_hooks[-1](error_type, error, traceback)
    finally:
        if _goes_on():
            _note_handled()
        elif not _interactive():
            _end_all(why_ended(error_type, error))


def _goes_on() -> bool:
    """Whether the program has called the hook itself, for an exception that it has handled or that
    ends a thread. Python calls it, perhaps through other hooks, when no frame of the program is
    left."""
    if threading.current_thread() is not threading.main_thread():
        return True
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name in ("<module>", "_run_module_as_main")


def _note_handled() -> None:
    """What was reported last did not end the program. Its number is enough: Python keeps it until
    another one has been reported."""
    global _handled
    _handled = id(getattr(sys, "last_value", None))


def _at_exit() -> None:
    # Set when an exception was reported, also if somebody replaced the hook.
    error = getattr(sys, "last_value", None)
    if error is None or id(error) == _handled or _interactive():
        _end_all("")
    else:
        _end_all(why_ended(type(error), error))


def why_ended(
    error_type: type[BaseException], error: BaseException | None, how: str = "ended by an uncaught exception"
) -> str:
    """What the other ranks hear of one that ends by this exception. Never raises."""
    if issubclass(error_type, KeyboardInterrupt):
        return "was interrupted (KeyboardInterrupt)"
    module = error_type.__module__
    name = error_type.__qualname__
    if module not in ("builtins", "__main__"):
        name = f"{module}.{name}"
    try:
        words = str(error)
    except BaseException:  # it is the program's own
        words = ""
    return f"{how}: {name}" + (f": {words}" if words else "")


def tellable(text: str) -> str:
    """`text` as C and UTF-8 can have it."""
    return text.replace("\0", "?").encode("utf-8", "replace").decode("utf-8")


def _end_all(failure: str) -> None:
    """`failure`: what the others hear; empty: the contexts are left in order."""
    if os.getpid() != _watching_process:
        return  # a forked child: the places are its parent's
    for context in list(_contexts):
        try:
            if failure:
                context.abandon(failure)
            else:
                context.close()
        except Exception as error:  # the process is to end, whatever this says
            print(f"ringd: leaving the job failed: {error}", file=sys.stderr)
