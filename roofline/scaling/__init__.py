"""Training on several devices, each with a copy of the model and its own part of the data.

What is sent and when, how long that takes, how much of it hides behind the backward pass, and what
each rank keeps in memory; all of it without torch, from an analysis of one training step.
"""
