"""Quantisation of torch modules: layers stay the user's own, with quantisers inside."""
