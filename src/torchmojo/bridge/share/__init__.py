"""Handles: memory held by a written rule until it is released, lent on by DLPack."""
