"""One pass of a model, recorded: on tensors without memory, or on copies of real ones."""
