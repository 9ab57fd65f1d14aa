"""What a model asks for: operators with shapes, FLOP and bytes, independent of any machine."""
