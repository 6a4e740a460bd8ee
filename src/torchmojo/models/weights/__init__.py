"""Weights from files: a reader that runs nothing, a private mapping, and what binds them."""
