"""Why the first calls of a model are slow, measured in fresh processes."""
