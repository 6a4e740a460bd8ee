"""Model files: checked, mapped, and put under models without a copy."""
