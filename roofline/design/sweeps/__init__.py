"""Designs over a grid of sizes: which wins where; and over machines: which wins on which."""
