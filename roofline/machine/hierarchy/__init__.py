"""Memory hierarchy from measurements: curves over size, cache sizes, working sets."""
