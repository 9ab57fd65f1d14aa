"""Plots: matplotlib functions that take axes, and the plain data they draw."""
