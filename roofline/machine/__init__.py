"""Hardware: profiles, and the kernels and benchmarks that measure them."""
