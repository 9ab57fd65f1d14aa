"""What could be changed of a model, found by rules that each have numbers to show for it.

The rules are in `rules`: they take the formulas and numpy, which who shows advice does not need.
"""
