"""Libraries at work without a word: what they log and warn of is not for the user."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Generator


@contextlib.contextmanager
def unlogged() -> Generator[None]:
    """Nothing is logged; afterwards as much as before."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Nothing is logged or warned of."""
    with unlogged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
