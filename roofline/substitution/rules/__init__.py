"""What may be rewritten: rules as data, each a pattern, a precondition, a rewrite, and weights."""
