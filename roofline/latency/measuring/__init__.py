"""Measurement of operator times: in place in a running model, or isolated."""
