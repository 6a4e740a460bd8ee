"""What `prepare` refuses, and in what words."""

import numpy as np
import pytest
import torch

from torchmojo.errors import ArgumentError, DTypeError, GradError, ShapeError

IMAGE = np.zeros((5, 7, 3), dtype=np.uint8)

CASES = [
    (
        ArgumentError,
        {"resize": "cubic"},
        "prepare: resize: wanted one of nearest, bilinear, area, given 'cubic'",
    ),
    (
        ArgumentError,
        {"fit": "pad"},
        "prepare: fit: wanted one of stretch, letterbox, crop, given 'pad'",
    ),
    (ArgumentError, {"order": "hsv"}, "prepare: order: wanted one of rgb, bgr, gray, given 'hsv'"),
    (
        ArgumentError,
        {"source": "cmyk"},
        "prepare: source: wanted one of rgb, bgr, gray, rgba, given 'cmyk'",
    ),
    (
        ArgumentError,
        {"channels": "middle"},
        "prepare: channels: wanted one of last, first, given 'middle'",
    ),
    (
        ArgumentError,
        {"layout": "chw"},
        "prepare: layout: wanted one of nchw, nhwc, given 'chw'",
    ),
    (
        ArgumentError,
        {"resize": "area", "antialias": True},
        "prepare: antialias: wanted resize bilinear, given area; area needs none",
    ),
    (ArgumentError, {"std": [1, 0, 1]}, "prepare: std: wanted numbers other than 0, given 0"),
    (
        ArgumentError,
        {"mean": float("nan")},
        "prepare: mean: wanted finite numbers, given nan",
    ),
    (ArgumentError, {"pad": "black"}, "prepare: pad: wanted finite numbers, given 'black'"),
    (
        ShapeError,
        {"mean": [0.5, 0.5]},
        "prepare: mean: wanted a number or 3, one for each channel of the model, given 2",
    ),
    (
        DTypeError,
        {"dtype": torch.float64},
        "prepare: dtype: wanted one of uint8, float16, bfloat16, float32, given torch.float64",
    ),
    (
        DTypeError,
        {"dtype": torch.float16, "out": torch.empty(1, 3, 4, 4)},
        "prepare: out: wanted float16, given torch.float32",
    ),
    (
        ShapeError,
        {"out": torch.empty(1, 4, 4, 3)},
        "prepare: out: wanted (1, 3, 4, 4) (nchw), given (1, 4, 4, 3)",
    ),
    (ArgumentError, {"out": IMAGE}, "prepare: out: wanted a torch tensor, given ndarray"),
    (
        ShapeError,
        {"crop": (0, 0, 8, 5)},
        "prepare: crop: wanted a rectangle inside images, 5 x 7, given (0, 0, 8, 5)",
    ),
    (
        ShapeError,
        {"crop": (2, 0, 2, 5)},
        "prepare: crop: wanted a rectangle inside images, 5 x 7, given (2, 0, 2, 5)",
    ),
    (
        ArgumentError,
        {"crop": (0, 0, 1.5, 1)},
        "prepare: crop: wanted left, top, right and bottom as whole numbers, given (0, 0, 1.5, 1)",
    ),
    (ShapeError, {"crop": [(0, 0, 1, 1)] * 2}, "prepare: crop: wanted one, or 1, given 2"),
    (ArgumentError, {"crop": 5}, "prepare: crop: wanted left, top, right and bottom"),
    (
        ShapeError,
        {"source": "gray"},
        "prepare: images: wanted 1 channels (gray, channels last), given 3; "
        'pass channels="first" if they lie elsewhere, or another source',
    ),
    (
        ShapeError,
        {"channels": "first"},
        "prepare: images: wanted 1 or 3 or 4 channels (rgb, channels first), given 5; "
        'pass channels="last" if they lie elsewhere, or another source',
    ),
]


@pytest.mark.parametrize(("kind", "options", "text"), CASES)
def test_an_option(prepare, kind, options, text):
    with pytest.raises(kind) as caught:
        prepare(IMAGE, 4, **options)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("size", [0, -3, (4,), (4, 0), (1, 2, 3), 1.5, (2.0, 3), "4", None])
def test_a_size(prepare, size):
    with pytest.raises(ArgumentError) as caught:
        prepare(IMAGE, size)
    assert str(caught.value) == (
        f"prepare: size: wanted a height and a width of 1 or more, given {size!r}"
    )


@pytest.mark.parametrize(
    ("kind", "images", "text"),
    [
        (ArgumentError, None, "images: wanted an image or a list of images, given NoneType"),
        (ArgumentError, [None], "images[0]: wanted an array, a tensor, a Pillow image or a path"),
        (DTypeError, IMAGE.astype(np.float32), "images: wanted uint8 or uint16, given float32"),
        (DTypeError, IMAGE > 1, "images: wanted uint8 or uint16, given bool"),
        (DTypeError, torch.zeros(2, 2, 3), "images: wanted uint8 or uint16, given float32"),
        (ShapeError, [IMAGE, IMAGE[0, 0]], "images[1]: wanted 2 or 3 axes, given 1: (3,)"),
        (ShapeError, IMAGE[:0], "images: wanted pixels, given (0, 7, 3)"),
        (ShapeError, IMAGE[:, :, :2], "images: wanted 1 or 3 or 4 channels (rgb, channels last)"),
    ],
)
def test_an_image(prepare, kind, images, text):
    with pytest.raises(kind) as caught:
        prepare(images, 4)
    assert str(caught.value).startswith(f"prepare: {text}")


def test_an_output_that_must_not_be_written(prepare):
    with pytest.raises(GradError):
        prepare(IMAGE, 4, out=torch.empty(1, 3, 4, 4, requires_grad=True))
    with torch.inference_mode():
        out = torch.empty(1, 3, 4, 4)
    with pytest.raises(GradError):
        prepare(IMAGE, 4, out=out)
    assert prepare(IMAGE, 4).tensor.shape == (1, 3, 4, 4)


def test_an_output_over_the_image(prepare):
    memory = torch.zeros(4, 4, 3, dtype=torch.uint8)
    with pytest.raises(ValueError, match="prepare: out: wanted memory apart from images"):
        prepare(memory, 4, layout="nhwc", out=memory[None])
