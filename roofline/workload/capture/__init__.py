"""Capture of one forward pass or training step, on fake tensors or on copies of real ones."""
