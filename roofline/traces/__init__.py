"""Profiler traces: events, kernels linked to operators, and the timeline of a step."""
