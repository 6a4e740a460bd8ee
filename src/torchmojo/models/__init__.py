"""Models: weights that are checked and mapped, models compiled ahead, and their way into memory."""
