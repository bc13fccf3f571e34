"""Standard input, output and error of the process, as every command expects them."""

from __future__ import annotations

import io
import os
import sys

__all__ = ["standard_streams"]


def standard_streams() -> None:
    """Make all three be there and speak UTF-8, whatever the shell closed and the environment says.

    A closed one stands for the null device: else a file that is opened later gets its number, and is written into. What
    UTF-8 can't hold, such as the bytes of a file's name in another encoding, is written as an escape.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one: those below it are taken by now.
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - until the end
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="strict" if mode == "r" else "backslashreplace")
