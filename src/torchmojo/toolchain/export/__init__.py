"""The folders that ``torchmojo build`` writes and ``torchmojo.load`` opens without a compiler."""
