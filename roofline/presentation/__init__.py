"""Tables, pictures, pages and files, all made from an `Analysis` and nothing else."""
