"""Prepares images that touch pages which must not be read; `end` or `start` tells on which side."""

import ctypes
import mmap
import sys

import numpy as np
import torch

from tests.vision.reference import reference
from torchmojo.vision import prepare

# Height, width, channels, and bytes from a pixel to the next.
SHAPES = (
    (3, 2, 3, 3),
    (2, 3, 3, 3),
    (7, 19, 3, 3),
    (5, 33, 4, 4),
    (5, 33, 3, 4),
    (4, 40, 1, 1),
    (1, 1, 3, 3),
    (1, 2, 3, 4),
    (9, 64, 3, 3),
)
OPTIONS = ({}, {"antialias": True}, {"resize": "area"}, {"resize": "nearest"})


def main(where):
    page = mmap.PAGESIZE
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    memory = mmap.mmap(-1, 3 * page)
    view = np.frombuffer(memory, np.uint8)
    first = view.ctypes.data
    for guard in (first, first + 2 * page):
        assert protect(ctypes.c_void_p(guard), page, 0) == 0
    for h, w, c, step in SHAPES:
        size = (h * w - 1) * step + c
        start = 2 * page - size if where == "end" else page
        image = np.lib.stride_tricks.as_strided(
            view[start : start + size], (h, w, c), (w * step, step, 1)
        )
        image[...] = np.random.default_rng(0).integers(0, 256, (h, w, c))
        for options in OPTIONS:
            for target in ((4, 5), (30, 77)):
                print(h, w, c, step, options, target, flush=True)
                found = prepare(image, target, **options, scale=1).tensor[0].double()
                expected = reference(image, target, **options, scale=1)
                torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)


if __name__ == "__main__":
    main(sys.argv[1])
