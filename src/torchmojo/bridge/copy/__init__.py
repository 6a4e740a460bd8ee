"""Copies where memory cannot be used as it lies: by policy, in one pass, counted and announced."""
