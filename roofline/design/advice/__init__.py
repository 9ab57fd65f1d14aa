"""Advice: changes of a model with an estimated saving.

`rules` imports formulas and numpy; showing saved advice does not.
"""
