"""The memory hierarchy, found by measuring: curves over size, cache sizes, working sets."""
