"""Zero-copy views of PyTorch tensors for kernels in plain Mojo."""

from torchmojo._managed import UnsafeTensorHandle
from torchmojo._torch import TorchTensor
from torchmojo.layout import Layout
from torchmojo.list import ListView, MutTensorList, TensorList
from torchmojo.optional import OptionalMutTensor, OptionalTensor, OptionalView
from torchmojo.owned import OwnedTensor
from torchmojo.parallel import num_threads, parallel_for
from torchmojo.view import MutTensor, Tensor, TensorView
