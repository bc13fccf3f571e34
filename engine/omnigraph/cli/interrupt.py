"""Ctrl-C ends a command that only reads at once, whatever it is doing.

Python hears of a signal between two of its own instructions, which may be a long sort or scan away. Here a thread is
told by the signal itself.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["INTERRUPTED", "ended_at_once"]

INTERRUPTED = 130
"""Exit code of what Ctrl-C ended: 128 and the signal's number, as shells have it."""


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Inside, SIGINT ends the process with `INTERRUPTED` and a line: there must be nothing to undo or to finish."""
    if threading.current_thread() is not threading.main_thread():  # no other may ask for signals
        yield
        return
    hears, tells = os.pipe()
    os.set_blocking(tells, False)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    told = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(hears,), name="omnigraph-interrupt", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(told)
        signal.signal(signal.SIGINT, before)
        os.close(tells)
        watcher.join()
        os.close(hears)


def _watch(hears: int) -> None:
    while number := os.read(hears, 1):
        if number[0] == signal.SIGINT:
            os.write(2, b"\ninterrupted\n")
            os._exit(INTERRUPTED)
