"""Graph rewrites that are searched by cost: a faster graph that computes the same (MetaFlow)."""
