"""Compute and stream kernels as LLVM IR, with a harness that times short bursts."""
