"""Language models: what their stages ask for, what they keep, and what a machine makes of that."""
