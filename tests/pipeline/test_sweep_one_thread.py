"""Products of matrices on one thread, where that can be asked for."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from roofline.pipeline.sweeps.jobs import one_thread


def threads() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_one_thread_within_and_as_many_as_before_after() -> None:
    before = threads()
    if not before:
        pytest.skip("numpy has no OpenBLAS of its own here")
    with pytest.raises(KeyError), one_thread():
        assert set(threads()) == {1}
        with one_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
        raise KeyError
    assert threads() == before


def test_products_have_the_same_digits_every_time() -> None:
    left = np.random.default_rng(1).random((3, 1200))
    right = np.random.default_rng(2).random((1200, 1200))
    with one_thread():
        first = left @ right
        assert all(((left @ right) == first).all() for _ in range(5))
