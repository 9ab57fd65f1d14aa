"""This machine: which it is, and how many threads it has CPUs for."""

from __future__ import annotations

from collections.abc import Mapping

from roofline.errors import HardwareError
from roofline.machine.hardware import Host


def this_host() -> Host:
    """This machine as profiles name it, so that it can be told whether one is of another."""
    from roofline.machine.system.host import describe_host

    def llvm_features() -> Mapping[str, bool]:
        from roofline.machine.kernels.compiler import host_features

        return host_features()

    return describe_host(compiler_features=llvm_features)


def check_threads_of_host(threads: int) -> None:
    """Refuses a number of threads that this machine has not the CPUs for.

    Raises:
        HardwareError: fewer than one, or more than there are.
    """
    available = this_host().available_cpus
    if not 1 <= threads <= available:
        raise HardwareError(f"--threads {threads} does not fit this host: choose 1 to {available}")
