"""The words that everything else is said in: units, data types, samples, file schemas."""
