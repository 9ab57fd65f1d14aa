"""Measures NVIDIA devices: peaks with and without tensor cores, memory, launches, copies."""
