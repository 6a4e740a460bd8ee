"""Conversions between dtypes."""
