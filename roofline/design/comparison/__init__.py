"""Designs × machines × points in one table: models, machines, sweeps, and their reports."""
