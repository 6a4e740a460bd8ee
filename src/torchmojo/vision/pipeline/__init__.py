"""The parts of a pipeline; its public names are those of ``torchmojo.vision``."""
