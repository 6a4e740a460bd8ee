"""Copies, conversions and DLPack exports, for the Python side: kernels do not import this.

A package of its own, so that editing it leaves the kernels of users compiled. `memory.mojo` and
`convert.mojo` export its C functions; each is compiled once a machine, when it is asked for first.
"""
