"""What a model asks for: operators with their shapes, FLOP and bytes, independent of any machine."""
