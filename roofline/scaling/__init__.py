"""Data-parallel training: gradient buckets, all-reduce times, overlap and memory per rank.

Everything follows from the analysis of one training step, without torch.
"""
