"""Measurement of NVIDIA GPUs: CUDA and tensor cores, memory, launches, copies."""
