"""Tests of `roofline.workload`."""
