"""The whole numbers behind quantised values: packed into bytes, kept in files, computed with."""
