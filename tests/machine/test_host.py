"""Hosts described from fake /proc and /sys trees."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.machine.system.activity import disturbances, read_activity
from roofline.machine.system.host import (
    UNKNOWN_CPU,
    architecture,
    available_memory_bytes,
    baseline,
    compiler_sets,
    describe_host,
    macos_sets,
    relevant,
    total_memory_bytes,
)
from roofline.machine.system.host_state import host_conditions, read_host_state
from tests.machine.host_trees import V2_MOUNT, Tree

X86 = """processor\t: 0
model name\t: AMD EPYC 7763 64-Core Processor
flags\t\t: fpu sse sse2 avx fma avx2 smep hypervisor

processor\t: 1
model name\t: another
"""
ARM = """processor\t: 0
Features\t: fp asimd aes crc32 asimdhp bf16 sve
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


@pytest.mark.parametrize(
    ("cpuinfo", "model", "sets"),
    [
        (X86, "AMD EPYC 7763 64-Core Processor", ("avx", "avx2", "fma", "sse", "sse2")),
        (ARM, "Arm implementer 0x41 part 0xd40", ("asimd", "asimdhp", "bf16", "sve")),
    ],
)
def test_a_host_as_its_files_show_it(
    tree: Tree, cpuinfo: str, model: str, sets: tuple[str, ...]
) -> None:
    tree.cpus(2)
    tree.write("proc/cpuinfo", cpuinfo)
    tree.write("etc/os-release", 'NAME=Debian\nPRETTY_NAME="Debian GNU/Linux 12"')
    host = describe_host(tree.root)
    assert (host.cpu_model, host.instruction_sets) == (model, sets)
    assert host.operating_system.startswith("Debian GNU/Linux 12, ")
    assert {"python", "kernel", "numpy"} <= set(host.versions)


def test_a_host_that_shows_nothing_is_still_described(tmp_path: Path) -> None:
    host = describe_host(tmp_path)
    assert host.cpu_model
    assert host.instruction_sets == baseline(host.architecture)
    assert host.available_cpus >= 1


@pytest.mark.parametrize(
    ("machine", "name"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")]
)
def test_architectures_have_one_name(machine: str, name: str) -> None:
    assert architecture(machine) == name


def test_the_instruction_sets_of_a_mac_have_linux_names() -> None:
    on = {"hw.optional.AdvSIMD", "hw.optional.arm.FEAT_BF16"}
    assert macos_sets(lambda name: "1" if name in on else "0") == ("asimd", "bf16")


LIMITED = {
    "proc/self/cgroup": "0::/",
    "proc/self/mountinfo": V2_MOUNT,
    "sys/fs/cgroup/memory.max": "500000",
    "sys/fs/cgroup/memory.current": "300000",
    "sys/fs/cgroup/memory.stat": "anon 250000\ninactive_file 40000\nactive_file 10000",
}


@pytest.mark.parametrize(
    ("meminfo", "files", "byte"),
    [
        ("MemTotal: 2000 kB\nMemAvailable: 1000 kB", {}, 1024000),
        ("MemTotal: 2000 kB\nMemAvailable: 1000 kB", LIMITED, 250000),
        *((text, {}, 12345) for text in ("", "MemAvailable: max kB", "MemAvailable: -1 kB")),
    ],
)
def test_available_memory_within_the_containers_limit(
    tree: Tree, meminfo: str, files: dict[str, str], byte: int
) -> None:
    for path, text in {"proc/meminfo": meminfo, **files}.items():
        tree.write(path, text)
    assert available_memory_bytes(tree.root, lambda: 12345) == byte
    assert available_memory_bytes(tree.root) > 0


def test_a_limit_on_addresses_leaves_what_is_not_used_of_it(tree: Tree) -> None:
    tree.write("proc/meminfo", "MemAvailable: 1000000 kB")
    tree.write("proc/self/statm", "100 60 20 1 0 30 0")
    used = 100 * os.sysconf("SC_PAGE_SIZE")

    def available(limit: int | None) -> int:
        return available_memory_bytes(tree.root, None, lambda: limit)

    # The half: the compiler is yet to be loaded, and threads reserve heaps.
    assert available(used + 4096) == 2048
    assert available(used - 1) == 0
    assert available(None) == available(1 << 40) == 1024000000


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v binds on Linux")
def test_ulimit_v_is_seen() -> None:
    code = """
import resource
from roofline.machine.system.host import available_memory_bytes
resource.setrlimit(resource.RLIMIT_AS, (3 << 28, 3 << 28))
print(available_memory_bytes())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 <= int(done.stdout) < 3 << 28


def test_the_system_says_how_much_memory_it_has(tree: Tree) -> None:
    assert total_memory_bytes(tree.root) is None
    tree.write("proc/meminfo", "MemTotal: 2000 kB\nMemFree: 300 kB")
    assert total_memory_bytes(tree.root) == read_host_state(tree.root).memory_bytes == 2048000


# --- instruction sets ----------------------------------------------------------------------------

KERNEL_SETS = (
    *("sse", "sse2", "pni", "ssse3", "sse4_1", "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni"),
    *("avx_vnni_int8", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    *("asimd", "asimdhp", "fphp", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm"),
    *("sme", "sme2"),
)


def test_every_set_that_a_kernel_may_ask_for_is_let_through() -> None:
    assert set(relevant(KERNEL_SETS)) == set(KERNEL_SETS)
    assert relevant(["smep", "smap", "aes", "crc32", "fpu", "hypervisor", "mmx"]) == ()


def test_a_compilers_features_have_the_kernels_names() -> None:
    x86 = ["avx2", "fma", "sse4.1", "avxvnni", "avxvnniint8", "avx512f", "avx512vnni"]
    x86 += ["avx512bf16", "avx512fp16", "amx-tile", "amx-bf16", "amx-int8", "amx-fp16", "sse3"]
    assert set(compiler_sets(dict.fromkeys(x86, True))) <= set(KERNEL_SETS)
    assert len(compiler_sets(dict.fromkeys(x86, True))) == len(x86)
    arm = dict.fromkeys(["neon", "fullfp16", "dotprod", "bf16", "i8mm", "sve", "sve2"], True)
    assert set(compiler_sets(arm)) == {
        *("asimd", "asimdhp", "fphp", "asimddp", "bf16", "i8mm", "sve", "sve2"),
        *("svebf16", "svei8mm"),
    }
    assert "svebf16" not in compiler_sets({**arm, "sve": False})
    assert compiler_sets({"avx2": False}) == ()


def test_a_compiler_is_asked_only_where_the_system_tells_nothing(tree: Tree) -> None:
    features = {"avx2": True, "fma": True}
    assert describe_host(tree.root, lambda: features).instruction_sets == ("avx2", "fma")
    tree.write("proc/cpuinfo", X86)
    assert "sse2" in describe_host(tree.root, lambda: features).instruction_sets


# --- what is unknown, and what is damaged --------------------------------------------------------


def test_an_unknown_cpu_is_described_and_what_is_unknown_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    there = read_host_state(tmp_path)
    assert there.host.cpu_model == UNKNOWN_CPU
    said = "; ".join(host_conditions(there))
    assert "unknown CPU" in said
    assert "only the x86_64 baseline (sse, sse2)" in said
    assert "cache sizes not reported" in said
    assert "CPU topology not reported" in said


def test_a_name_with_escapes_is_shown_without_them(tree: Tree) -> None:
    tree.write("proc/cpuinfo", "model name\t: Fast\x1b[31m CPU\x07 " + "x" * 999)
    name = describe_host(tree.root).cpu_model
    assert name.isprintable()
    assert name.startswith("Fast")
    assert len(name) <= 200


READ_FILES = (
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/stat",
    "proc/loadavg",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/sys/kernel/numa_balancing",
    "etc/os-release",
    "sys/devices/system/cpu/online",
    "sys/devices/cpu_core/cpus",
    "sys/devices/cpu_atom/cpus",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/cpu0/cpu_capacity",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu0/cache/index0/level",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/cpu/cpu0/cache/index0/type",
    "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "sys/devices/system/node/has_memory",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/meminfo",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/cpu.stat",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
    "sys/kernel/mm/transparent_hugepage/enabled",
)
WORDS = st.sampled_from(
    (
        *("max", "0", "-1", "9" * 25, "18446744073709551615", "0-3", "3-0", "0-65535", "²", "\0"),
        *("Unified", "K", "cpu0", "cpu", ":", "0::/", "0::/../..", "kB", "MemAvailable: 5", "["),
        *("nr_throttled", "Cpus_allowed_list: 0", "Node 0 MemTotal: x kB", V2_MOUNT, "]"),
        "flags : avx512_vnni",
    )
)
TEXTS = st.one_of(
    st.binary(max_size=60),
    st.lists(WORDS, max_size=6).map(lambda words: " ".join(words).encode()),
    st.lists(WORDS, max_size=6).map(lambda words: "\n".join(words).encode()),
)


@given(st.dictionaries(st.sampled_from(READ_FILES), TEXTS, max_size=len(READ_FILES)))
def test_no_damage_to_proc_and_sys_raises(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(text)
        there = read_host_state(root)
        assert 1 <= there.topology.available_cpus <= len(there.topology.cores)
        assert there.available_bytes >= 0
        assert all(cache.size_bytes > 0 for cache in there.topology.caches)
        before = read_activity(root, there.topology.allowed_cpus)
        assert before.steal_s >= 0
        disturbances(before, before, elapsed_s=1.0, cpus=1)
        for line in host_conditions(there):
            assert line
            assert line.isprintable()
