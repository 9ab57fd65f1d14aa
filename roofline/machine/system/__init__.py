"""What the operating system tells about this host: CPUs, limits, memory, what else runs."""
