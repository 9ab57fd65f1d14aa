"""Regression gate: cost of a model, baselines and conditions."""
