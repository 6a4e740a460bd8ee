"""Writes the folder of a prepared model: library, weights, manifest, and an index for Mojo."""
