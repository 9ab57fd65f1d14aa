"""Links between processes in this machine's profile: what keeps them, and what leaves it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from roofline.cli.main import run
from roofline.errors import HardwareError, MeasurementError
from roofline.machine import catalog
from roofline.machine import links as measured_links
from roofline.machine.hardware import HardwareProfile, Host, Link, profile_to_toml
from roofline.machine.measuring import benchmark
from roofline.machine.measuring.estimation import Burst, Series
from roofline.pipeline import measuring as pipeline_links
from roofline.pipeline.measuring import measure_links, measure_with_samples, with_links
from tests.builders import SOURCE, ceiling, level, profile

HERE = Host(
    cpu_model="Imagined 9000",
    architecture="x86_64",
    operating_system="Linux",
    instruction_sets=("avx2", "fma"),
    available_cpus=4,
    versions={"torch": "2.13.0"},
)
ELSEWHERE = replace(HERE, cpu_model="Imagined 9001")
SERIES = (
    Series(
        label="fma",
        quantity="flop",
        work=1e6,
        bursts=(Burst(wall_s=1e-3, cpu_s=1e-3, busy=1.0),),
    ),
)


def link(kernel: str, rate: float, ends: str = "process") -> Link:
    return Link(
        source=ends,
        target=ends,
        kernel=kernel,
        threads=1,
        peak_bytes_per_s=rate,
        sustained_bytes_per_s=rate,
        provenance=SOURCE,
    )


SUMS, SENDS, NODES = link("gloo all-reduce", 1e9), link("gloo send", 2e9), link("read", 3e9, "n0")


def machine(flop_per_s: float, host: Host | None = HERE, *links: Link) -> HardwareProfile:
    dram = level("DRAM", None, {"read": {1: 1e10}})
    made = profile([ceiling(flop_per_s)], [dram])
    return replace(made, name="fake", effort="default", host=host, links=links)


def keep(before: HardwareProfile) -> None:
    file = catalog.host_file()
    file.parent.mkdir(parents=True)
    file.write_text(profile_to_toml(before))


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Callable[[HardwareProfile], None]:
    """Makes a measurement of the machine find this."""

    def finds(found: HardwareProfile) -> None:
        monkeypatch.setattr(benchmark, "measure_hardware", lambda **_: (found, SERIES))

    return finds


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_links, "this_host", lambda: HERE)


Measures = Callable[[HardwareProfile], None]


def test_a_new_measurement_keeps_the_links_between_processes(measures: Measures) -> None:
    keep(machine(1e11, HERE, NODES, SUMS, SENDS))
    measures(machine(2e11, HERE, replace(NODES, sustained_bytes_per_s=1e9)))
    found = measure_with_samples()
    kept = catalog.load_hardware("host")
    assert kept == found.profile
    assert kept.compute[0].peak_flop_per_s == 2e11
    # Those to memory were measured anew.
    assert kept.links == (replace(NODES, sustained_bytes_per_s=1e9), SUMS, SENDS)
    assert found.note.startswith("inter-process links kept from 2026-01-01;")
    assert "roofline measure --links" in found.note


def test_another_torch_is_said(measures: Measures) -> None:
    keep(machine(1e11, replace(HERE, versions={"torch": "2.0.0"}), SUMS))
    measures(machine(2e11))
    found = measure_with_samples()
    assert found.profile.links == (SUMS,)
    assert "kept from 2026-01-01 with torch 2.0.0;" in found.note


@pytest.mark.parametrize(
    ("before", "said"), [(ELSEWHERE, "'Imagined 9001' →"), (None, "unknown host")]
)
def test_links_of_another_host_are_left_out_and_that_is_said(
    before: Host | None, said: str, measures: Measures
) -> None:
    keep(machine(1e11, before, SUMS))
    measures(machine(2e11))
    found = measure_with_samples()
    assert found.profile.links == catalog.load_hardware("host").links == ()
    assert said in found.note and "roofline measure --links" in found.note


def test_without_links_nothing_is_said(measures: Measures) -> None:
    keep(machine(1e11, HERE, NODES))
    measures(machine(2e11))
    assert measure_with_samples().note == ""
    assert catalog.load_hardware("host").links == ()


def test_the_command_says_what_became_of_them(
    measures: Measures, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(machine(1e11, HERE, SUMS))
    measures(machine(2e11))
    assert run(["measure"]) == 0
    assert "inter-process links kept" in capsys.readouterr().err


def test_a_quick_profile_has_them_too(measures: Measures) -> None:
    keep(machine(1e11, HERE, SUMS))
    measures(replace(machine(2e11), effort="quick"))
    found = measure_with_samples(effort="quick")
    assert found.file is not None and found.file.stem == "host-quick"
    assert found.profile.links == (SUMS,)
    assert catalog.load_hardware("host").compute[0].peak_flop_per_s == 1e11


@pytest.mark.usefixtures("here")
def test_links_are_added_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine(1e11, HERE, NODES, SUMS)
    keep(before)
    new = replace(SUMS, peak_bytes_per_s=9e9)
    monkeypatch.setattr(measured_links, "measure_links", lambda: (new, SENDS))
    found = measure_links()
    assert found == catalog.load_hardware("host")
    assert found == replace(before, links=(NODES, new, SENDS))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MeasurementError("died")])
def test_what_is_interrupted_leaves_the_profile_as_it_was(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(machine(1e11, HERE, SUMS))
    before = catalog.host_file().read_bytes()

    def raises() -> Any:
        raise error

    monkeypatch.setattr(measured_links, "measure_links", raises)
    with pytest.raises(type(error)):
        measure_links()
    assert catalog.host_file().read_bytes() == before
    assert [each.name for each in catalog.host_file().parent.iterdir()] == ["host.toml"]


@pytest.mark.usefixtures("here")
def test_what_was_measured_meanwhile_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(machine(1e11))

    def meanwhile() -> tuple[Link, ...]:
        catalog.host_file().write_text(profile_to_toml(machine(3e11)))
        return (SUMS,)

    monkeypatch.setattr(measured_links, "measure_links", meanwhile)
    assert measure_links() == machine(3e11, HERE, SUMS)


@pytest.mark.usefixtures("here")
def test_links_are_not_added_to_the_profile_of_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(machine(1e11, ELSEWHERE))
    monkeypatch.setattr(measured_links, "measure_links", lambda: pytest.fail("measured"))
    with pytest.raises(HardwareError, match=r"from another host .*run `roofline measure` first"):
        measure_links()


def test_links_replace_their_like_only() -> None:
    assert with_links(machine(1e11, HERE, NODES, SUMS), (SENDS,)).links == (NODES, SUMS, SENDS)
