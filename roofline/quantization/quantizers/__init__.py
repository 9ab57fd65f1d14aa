"""Weights and activations on few values: SAWB, PACT and max-abs."""
