"""Profile of a machine: compute ceilings and memory levels, each figure with its provenance.

Roofline ceilings follow S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual
Performance Model for Multicore Architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from roofline.machine.hardware.ceilings import HUGE_PAGE_FAULT as HUGE_PAGE_FAULT
from roofline.machine.hardware.ceilings import PAGE_FAULT as PAGE_FAULT
from roofline.machine.hardware.ceilings import Bandwidth as Bandwidth
from roofline.machine.hardware.ceilings import BandwidthCurve as BandwidthCurve
from roofline.machine.hardware.ceilings import Clock as Clock
from roofline.machine.hardware.ceilings import ComputeCeiling as ComputeCeiling
from roofline.machine.hardware.ceilings import Duration as Duration
from roofline.machine.hardware.ceilings import LatencyCurve as LatencyCurve
from roofline.machine.hardware.ceilings import Link as Link
from roofline.machine.hardware.ceilings import MemoryKernel as MemoryKernel
from roofline.machine.hardware.ceilings import MemoryLevel as MemoryLevel
from roofline.machine.hardware.ceilings import Overhead as Overhead
from roofline.machine.hardware.ceilings import Provenance as Provenance
from roofline.machine.hardware.ceilings import TheoreticalRate as TheoreticalRate
from roofline.machine.hardware.ceilings import WriteAllocate as WriteAllocate
from roofline.machine.hardware.ceilings import describe_level as describe_level
from roofline.machine.hardware.profiles import Device as Device
from roofline.machine.hardware.profiles import Effort as Effort
from roofline.machine.hardware.profiles import HardwareProfile as HardwareProfile
from roofline.machine.hardware.profiles import Host as Host
from roofline.machine.hardware.profiles import describe_threads as describe_threads
from roofline.machine.hardware.profiles import profile_to_toml as profile_to_toml
from roofline.machine.hardware.profiles import read_profile as read_profile
