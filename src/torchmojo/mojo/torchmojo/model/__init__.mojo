"""Runs models that `torchmojo.prepare` wrote, in programs without Python."""

from torchmojo.model.index import InputSpec, OutputSpec
from torchmojo.model.model import Model
from torchmojo.model.outputs import Outputs
from torchmojo.model.system import Mapping
