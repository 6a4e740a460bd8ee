"""What the glue of torch operators calls: arguments on torch's stack instead of Python objects."""

from torchmojo_ops.boxed import Boxed, drop_inputs
from torchmojo_ops.fail import throw
from torchmojo_ops.gate import IDLE, pass_gate
from torchmojo_ops.standalone import register_operators
from torchmojo_ops.table import table
from torchmojo_ops.unbox import unbox_bool, unbox_float, unbox_int, unbox_string, unbox_uint
