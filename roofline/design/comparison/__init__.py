"""Comparisons of models, machines and sweeps, and their reports."""
