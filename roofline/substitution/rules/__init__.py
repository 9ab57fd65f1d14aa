"""Rewrite rules as data: pattern, precondition, rewrite, and weights."""
