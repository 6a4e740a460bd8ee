"""The door table: addresses that Python looks up once and glue reads on every call."""


struct Slot:
    """Offsets of the words of the door table; `torchmojo.bridge.doors` fills them in this order."""

    comptime NONE = 0
    """The object `None`."""
    comptime FLOAT_TYPE = 8
    """The type `float`."""
    comptime INT_TYPE = 16
    """The type `int`."""
    comptime TRUE = 24
    """The object `True`."""
    comptime FALSE = 32
    """The object `False`."""
    comptime STR_TYPE = 40
    """The type `str`."""
    comptime LIST_TYPE = 48
    """The type `list`."""
    comptime TUPLE_TYPE = 56
    """The type `tuple`."""
    comptime LEASE_TYPE = 64
    """The type of a borrowed foreign object."""
    comptime LEASE_RECORD = 72
    """Offset in a lease of a Python int, the address of its record."""
    comptime TENSOR_OFFSET = 80
    """Offset of the `at::Tensor` in a tensor object."""
    comptime GET_DIM = 88
    """`aoti_torch_get_dim`."""
    comptime GET_SIZES = 96
    """`aoti_torch_get_sizes`."""
    comptime GET_STRIDES = 104
    """`aoti_torch_get_strides`."""
    comptime GET_DTYPE = 112
    """`aoti_torch_get_dtype`."""
    comptime GET_DEVICE_TYPE = 120
    """`aoti_torch_get_device_type`."""
    comptime GET_LAYOUT = 128
    """`aoti_torch_get_layout`."""
    comptime GET_CONST_DATA = 136
    """`torch_get_const_data_ptr`: does not copy a lazily cloned storage."""
    comptime GET_MUTABLE_DATA = 144
    """`torch_get_mutable_data_ptr`: does."""
    comptime GET_STORAGE_SIZE = 152
    """`aoti_torch_get_storage_size`, in bytes."""
    comptime GET_STORAGE_OFFSET = 160
    """`aoti_torch_get_storage_offset`, in elements."""
    comptime IS_NEG = 168
    """`at::native::is_neg`."""
    comptime IS_INFERENCE = 176
    """`at::native::is_inference`."""
    comptime REQUIRES_GRAD = 184
    """`c10::TensorImpl::requires_grad`."""
    comptime GRAD_ENABLED = 192
    """`c10::GradMode::is_enabled`."""
    comptime INFERENCE_ENABLED = 200
    """`c10::InferenceMode::is_enabled`."""
    comptime BUMP_VERSION = 208
    """`torch::autograd::impl::bump_version`."""
    comptime IS_CONJ = 216
    """`at::native::is_conj`."""
    comptime TENSOR_TYPES = 224
    """Sixteen types whose objects hold plain tensors: `Tensor`, `Parameter`, then subclasses seen."""
    comptime TENSOR_TYPE_COUNT = 16
    """How many of them there is room for; unused ones are 0."""
    comptime WIDTHS = 352
    """A byte for each of torch's 64 dtype numbers: bytes of an element, 0 for "not in a kernel"."""
    comptime HANDLE_TYPE = 416
    """The type `torchmojo.Handle`."""
    comptime HANDLE_TARGET = 424
    """Offset in a handle of what it holds: a tensor, an exporter or a lease; `None` once released."""
    comptime HANDLE_ADDRESS = 432
    """Offset in a handle of a Python int, the address of the first element when it was made."""
    comptime HANDLE_SHAPE = 440
    """Offset in a handle of a tuple, the sizes when it was made."""
    comptime HANDLE_STRIDES = 448
    """Offset in a handle of a tuple, the strides in elements when it was made."""
    comptime HANDLE_FROZEN = 456
    """Offset in a handle of `True` where it lends for reading only."""
    comptime EXPORTS = 464
    """Buffer exports that calls hold at this moment; counted here for the leak finder."""
