"""Models out of files: looked into before torch opens them, and opened without running code."""
