"""The search for a cheaper graph: backtracking with a tolerance, whole or in pieces."""
