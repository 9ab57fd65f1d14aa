"""Operators of a model with shapes, FLOP and bytes, independent of any machine."""
