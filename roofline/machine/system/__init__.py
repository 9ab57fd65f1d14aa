"""This host as the operating system reports it: CPUs, limits, memory, other processes."""
