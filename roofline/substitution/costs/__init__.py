"""What a graph costs: a bound, a prediction, or the sum of what its operators were measured at."""
