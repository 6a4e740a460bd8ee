"""What generated glue calls: the border between CPython and a kernel. Not for users."""

from torchmojo._glue.code import Code
from torchmojo._glue.frame import Frame
from torchmojo._glue.meet import meet
from torchmojo._glue.overlap import overlaps_in_part
from torchmojo._glue.python import Object, Objects
from torchmojo._glue.record import Record
from torchmojo._glue.records import Records
from torchmojo._glue.result import Result
from torchmojo._glue.scalar import read_bool, read_float, read_int, read_string, read_uint
from torchmojo._glue.slots import Slots
from torchmojo._glue.traps import describe, free_traps, new_traps, sprung, trap
