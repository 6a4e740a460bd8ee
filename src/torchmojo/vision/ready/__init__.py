"""Pipelines around models that people use, whose weights lie in installed packages."""
