"""Cost-based search of graph rewrites: a faster graph that computes the same (MetaFlow)."""
