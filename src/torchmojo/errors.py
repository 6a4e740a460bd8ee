"""Error classes; each is also a builtin, so that ``except ValueError`` keeps working.

Every message has four facts in one order: the operation, the argument, what was wanted, what was
given (``f32[2,3] cpu strides(1,2)``, printed by ``bridge/refuse/facts.py``); then what to do.
"""

from __future__ import annotations

__all__ = [
    "AliasError",
    "ArgumentError",
    "BoundsError",
    "CompileError",
    "CompilerNotFoundError",
    "CopyError",
    "CopyWarning",
    "DTypeError",
    "DeviceError",
    "ExportError",
    "GradError",
    "HandleError",
    "ImageError",
    "KernelError",
    "LayoutError",
    "LeakError",
    "LibraryError",
    "ModelError",
    "NoDataError",
    "ReadOnlyError",
    "ShapeError",
    "SignatureError",
    "TorchmojoError",
    "TorchmojoWarning",
    "WeightsError",
]


class TorchmojoError(Exception):
    """Base of every error that torchmojo raises on purpose."""


class TorchmojoWarning(UserWarning):
    """Something works, but slower or elsewhere than asked for."""


class CompilerNotFoundError(TorchmojoError, RuntimeError):
    """No Mojo compiler of a supported version was found."""


class CompileError(TorchmojoError, RuntimeError):
    """The Mojo compiler refused the user's source; the text shows file, line and caret."""


class LibraryError(TorchmojoError, RuntimeError):
    """A built folder cannot be used: it is damaged, or was made for another machine or version."""


class ModelError(TorchmojoError, RuntimeError):
    """A model cannot be prepared, or a prepared one cannot be used: damaged, or made elsewhere."""


class SignatureError(TorchmojoError, TypeError):
    """A kernel's signature has something that cannot be called from Python."""


class ArgumentError(TorchmojoError, TypeError):
    """Wrong number, name or kind of argument in a call."""


class DTypeError(TorchmojoError, TypeError):
    """A tensor's dtype is none of those that the kernel takes."""


class ShapeError(TorchmojoError, ValueError):
    """Rank or sizes differ from what the kernel's signature asks for."""


class LayoutError(TorchmojoError, ValueError):
    """Strides, alignment or lazy bits (conj, neg) are not what the kernel takes."""


class DeviceError(TorchmojoError, ValueError):
    """A tensor lives on a device for which there is no kernel."""


class NoDataError(TorchmojoError, ValueError):
    """A tensor has no memory of its own (fake, meta, batched), or less than its shape says."""


class ReadOnlyError(TorchmojoError, ValueError):
    """A kernel would write an argument that must not be written."""


class AliasError(TorchmojoError, ValueError):
    """An output overlaps itself, or overlaps another argument in part."""


class GradError(TorchmojoError, RuntimeError):
    """A write that autograd could not see: a tensor that requires grad, outside ``no_grad``."""


class KernelError(TorchmojoError, RuntimeError):
    """A Mojo kernel raised; the text is the Mojo error's own."""


class BoundsError(TorchmojoError, IndexError):
    """A kernel built with ``bounds=True`` used an index outside a tensor."""


class HandleError(TorchmojoError, ValueError):
    """A handle is used or released after it was released."""


class ExportError(TorchmojoError, BufferError):
    """Memory cannot be handed to another library as it asks for it (``__dlpack__``)."""


class CopyError(TorchmojoError, RuntimeError):
    """Something would be copied inside ``no_copies()``."""


class LeakError(TorchmojoError, AssertionError):
    """Something is still held at the end of ``leak_check()``, or was freed twice."""


class WeightsError(TorchmojoError, ValueError):
    """A file of weights is damaged, hostile, of another kind, or does not fit the model."""


class ImageError(TorchmojoError, ValueError):
    """An image is damaged, hostile, or of a kind that cannot be read."""


class CopyWarning(TorchmojoWarning):
    """A call works, but copies an argument first."""


# Users meet these names as ``torchmojo.ShapeError``: tracebacks should say so too.
for _name in __all__:
    globals()[_name].__module__ = "torchmojo"
del _name
