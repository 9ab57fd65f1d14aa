"""The cost of a model compared with its cost before: baselines, conditions, and the verdict."""
