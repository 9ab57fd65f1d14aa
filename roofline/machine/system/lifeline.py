"""Processes that end with the one that started them, whatever ended that."""

from __future__ import annotations

import os
import select
import signal
import threading


def end_with(pipe: int) -> None:
    """Ends this process once the other end of a pipe is closed, and its whole session if it leads
    one.

    The system closes it with the process that holds it. What comes through the pipe is left there.

    Args:
        pipe: a file descriptor of either end, whose other end is held by that process alone; on
            Windows the handle of the process.
    """
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()


def _end_with(pipe: int) -> None:
    if hasattr(select, "poll"):
        closed = select.poll()
        # For nothing that comes or could be sent: only that the other end is gone.
        closed.register(pipe, 0)
        closed.poll()
    else:
        from multiprocessing.connection import wait

        wait([pipe])
    if hasattr(os, "getsid") and os.getsid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
