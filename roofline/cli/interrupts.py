"""Ctrl-C: whatever it interrupts, the command ends with one line and 130.

Imports nothing but the standard library's smallest modules: it is needed before all others.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from types import FrameType

INTERRUPTED = 130
"""The exit code: 128 and the number of SIGINT, as shells have it."""

MESSAGE = "roofline: interrupted"


def end_on_interrupt() -> None:
    """Makes an interrupt end the process at once, while it starts and while it ends.

    There is nothing to clean up then, and a traceback out of an import helps nobody. When all is
    said and Python takes itself down, interrupts have no effect any more.
    """
    if _is_ours():
        signal.signal(signal.SIGINT, _end)
        # What is registered first is called last. (Python would put back the system's handler,
        # which ends the process without a word and without an exit code.)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def forget_interrupts() -> None:
    """Makes Python end with the exit code that it is given, after an interrupt that was caught.

    Where the KeyboardInterrupt passed an ``exec`` of text (dataclasses and named tuples make their
    methods so), Python takes it for one that nobody caught, and kills itself by the signal in the
    end; unless another ``exec`` goes well.
    """
    exec("")


def _end(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)


def _is_ours() -> bool:
    """Whether an interrupt comes to this thread, and the process was not started to ignore it."""
    return (
        threading.current_thread() is threading.main_thread()
        # None is a handler that was not installed from Python, and could not be put back.
        and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None)
    )


class Interrupts:
    """Remembers an interrupt, also where the KeyboardInterrupt that it raises never arrives.

    C code that runs Python (the import of an extension module, a callback) may take the exception
    for a failure of its own and clear it.
    """

    def __init__(self) -> None:
        self.seen = False
        self.over = False
        """The command has ended; there is nothing left to interrupt."""
        self._before: object = None

    def __enter__(self) -> Interrupts:
        if _is_ours():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # pyright: ignore[reportArgumentType]  as it was given

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.seen = True
        if not self.over:
            raise KeyboardInterrupt
