"""Looks at what torchmojo found and did: whether this machine is fit for it."""
