"""Models and designs side by side on a machine, or on several."""
