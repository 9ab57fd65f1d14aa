"""How long operators really take: measured in place, learned from, predicted, and validated."""
