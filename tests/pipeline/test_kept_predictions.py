"""Predictions that are kept on disk are those that the calibration gives."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import roofline
from roofline.latency import prediction_cache
from roofline.machine.catalog import load_hardware
from roofline.pipeline import cache, machines
from roofline.pipeline.machines import host_latency_file, load_calibrated, save_predictions
from roofline.run import Run
from tests.pipeline.test_earlier_runs import SHAPE, keep, net
from tests.pipeline.test_earlier_runs import machine as machine

X = torch.zeros(SHAPE)
FAMILIES = "abcdefgh"


@pytest.fixture(autouse=True)
def calibrated(machine: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep predictions of a machine that was measured with eight families."""
    monkeypatch.delenv("ROOFLINE_NO_CACHE")
    monkeypatch.setattr(machines, "_loaded", {})
    for wide, family in enumerate(FAMILIES, 4):
        keep(net(wide), name=family, family=family)
    yield
    machines._loaded.clear()


def next_process() -> list[Path]:
    """End this process, as far as predictions are concerned; return the files that it kept."""
    save_predictions()
    machines._loaded.clear()
    return list(cache.folder("prediction").glob("*"))


def asked(*, no_cache: bool = False) -> list[str]:
    """Everything that predicts: known and unknown calls, findings, designs, and sizes."""
    texts = "conv2d(4,9,3)+relu()@8x8", "conv2d(4,12,3)+relu()@8x8"
    results = [
        roofline.analyze(net(), X, no_cache=no_cache),
        roofline.predict(net(), X, dtype="float64", no_cache=no_cache),
        roofline.advise(net(20), X, no_cache=no_cache),
        roofline.compare(*texts, no_cache=no_cache),
        roofline.sweep(*texts, axes="batch=1|2", no_cache=no_cache),
    ]
    return [each.to_json() for each in results]


def test_kept_predictions_are_the_same_bytes_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = asked(no_cache=True)
    assert next_process() == []
    assert asked() == fresh
    (file,) = next_process()
    written = file.stat().st_ino
    with monkeypatch.context() as patched:
        patched.setattr(machines, "Store", lambda *_: pytest.fail("runs were read"))
        assert asked() == fresh
    # Nothing is new.
    assert next_process() == [file] and file.stat().st_ino == written
    first = roofline.analyze(net(), X)
    assert first.earlier is not None and first.prediction is not None
    assert first.prediction.held_out_error is not None
    assert all(row.predicted_s for row in first.operators if row.traffic_bytes)


def test_a_run_that_is_added_counts() -> None:
    before = roofline.predict(net(99), X)
    next_process()
    keep(net(99), family="late")
    after = roofline.predict(net(99), X)
    assert before.earlier is None and after.earlier is not None
    assert after == roofline.predict(net(99), X, no_cache=True) != before
    assert len(next_process()) == 2


def test_what_is_damaged_is_learned_again_or_told() -> None:
    fresh = roofline.predict(net(), X)
    (file,) = next_process()
    good = file.read_bytes()
    for damaged in (good[:-9], b"", bytes(99)):
        file.write_bytes(damaged)
        assert roofline.predict(net(), X) == fresh
        assert next_process() == [file] and cache.read(file) is not None
    host_latency_file().write_bytes(b"no database")
    found = [roofline.predict(net(), X).warnings for _ in range(2) if next_process()]
    assert found[0] == found[1] and "is damaged" in str(found[0])


def test_no_cache_reads_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "read", lambda _: pytest.fail("was read"))
    roofline.analyze(net(), X, no_cache=True)
    monkeypatch.setenv("ROOFLINE_NO_CACHE", "1")
    roofline.analyze(net(), X)
    assert next_process() == []


def test_a_search_keeps_nothing_and_what_is_full_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roofline.predict(net(), X)
    (file,) = next_process()
    good = file.read_bytes()
    monkeypatch.setattr(prediction_cache, "MAX_PREDICTIONS", 40)
    for wide in range(20, 35):
        roofline.predict(net(wide), X)
    ((_, predictor, _),) = machines._loaded.values()
    assert predictor is not None and len(predictor.calibration.cache.values) <= 80
    next_process()
    assert file.read_bytes() == good
    assert prediction_cache.PredictionCache({b"": tuple(range(41))}).values == {}


def test_another_process_takes_the_runs_along() -> None:
    roofline.predict(net(), X)
    next_process()
    roofline.predict(net(), X)
    predictor = load_calibrated(load_hardware("host"), None, Run())
    assert predictor is not None and "runs" not in vars(predictor.calibration)
    sent = pickle.dumps(predictor)
    host_latency_file().unlink()
    assert len(pickle.loads(sent).calibration.runs) == len(FAMILIES)
