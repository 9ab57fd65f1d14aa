"""The real time of operators: in place as the model runs, or each on its own."""
