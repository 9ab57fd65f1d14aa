"""Compute and stream kernels as LLVM IR, and the harness that times them in short bursts."""
