"""What a host can do: its profile, and the kernels and benchmarks that measure it."""
