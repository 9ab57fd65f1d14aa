"""Models as operator graphs without weights: capture, counting and module building."""
