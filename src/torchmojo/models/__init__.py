"""Models: weights that are mapped, models that are compiled ahead, and their way into memory."""
