"""Copies between tensors of any strides."""
