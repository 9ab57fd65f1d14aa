"""Times of operators: measured in place, learned, predicted, and validated."""
