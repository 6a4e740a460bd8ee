"""Models: verified weights, prepared folders, warm-up."""
