"""Kernels as torch operators: schema, allocation, autograd, compile and export, with no C++."""
