"""Off the fast path: why a call is refused, in words and as data, or how it is mended."""
