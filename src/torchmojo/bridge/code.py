"""Why glue refused a call; the same numbers as ``mojo/torchmojo/_glue/code.mojo``."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Code"]


class Code(IntEnum):
    """Reasons. The test ``test_codes_agree`` compares both files."""

    OK = 0
    FOREIGN = 1
    NO_DATA = 2
    LAYOUT_KIND = 3
    DEVICE = 4
    NEG_BIT = 5
    DTYPE = 6
    SAME_DTYPE = 7
    RANK = 8
    SAME_RANK = 9
    LAYOUT = 10
    ALIGNMENT = 11
    AXIS = 12
    READ_ONLY = 13
    GRAD = 14
    INFERENCE = 15
    SELF_OVERLAP = 16
    PARTIAL_OVERLAP = 17
    COUNT = 18
    SCALAR = 19
    RANGE = 20
    RAISED = 21
    BOUNDS = 22
    NONE = 23
    CONJ_BIT = 24
    ADOPT = 25
    RELEASED = 26
    MOVED = 27
