"""Signatures: read from the compiler's account of a file, written as glue and as stubs."""
