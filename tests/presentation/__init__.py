"""Tests of `roofline.presentation`."""
