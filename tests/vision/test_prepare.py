"""Numbers of `prepare`: against torch in float64, Pillow, and itself in other layouts."""

import ctypes
import mmap
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.vision.reference import reference

# In levels of 0 to 255: the roundings to float32 of a few dozen products.
TOLERANCE = 2e-4
RETINA = (
    "skimage/data/retina.jpg",
    "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6",
)
MOTORCYCLE = (
    "skimage/data/motorcycle_left.png",
    "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
)
SIZES = st.integers(1, 70)


def picture(h, w, c=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (h, w, c), dtype=np.uint8)


# The same pixels, laid out in another way.
LAYOUTS = {
    "packed": lambda x: x,
    "planes": lambda x: np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0),
    "transposed": lambda x: np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2),
    "mirrored": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "upside_down": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "channels_back": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    "every_second": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "wide_rows": lambda x: np.pad(x, ((0, 0), (3, 5), (0, 0)))[:, 3:-5],
    "wide_pixels": lambda x: np.pad(x, ((0, 0), (0, 0), (1, 4)))[..., 1:-4],
    "torch": torch.from_numpy,
    "torch_planes": lambda x: torch.from_numpy(x).permute(2, 0, 1).contiguous().permute(1, 2, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("resize", ["nearest", "bilinear", "area", "antialias"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_strides(prepare, layout, resize, channels):
    image = picture(61, 83, channels)
    options = {"resize": resize}
    if resize == "antialias":
        options = {"antialias": True}
    for size in ((29, 37), (100, 131), (61, 83), (1, 1)):
        found = prepare(LAYOUTS[layout](image), size, **options, scale=1).tensor[0]
        expected = reference(image, size, **options, scale=1)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE)


@settings(max_examples=150)
@given(data=st.data())
def test_all_that_can_be_asked(prepare, data):
    h, w, c = data.draw(SIZES), data.draw(SIZES), data.draw(st.sampled_from([1, 3, 4]))
    size = (data.draw(SIZES), data.draw(SIZES))
    image = picture(h, w, c, data.draw(st.integers(0, 9)))
    order = data.draw(st.sampled_from(["rgb", "bgr", "gray"]))
    count = 1 if order == "gray" else 3
    values = st.lists(st.floats(0.25, 2), min_size=count, max_size=count)
    resize = data.draw(st.sampled_from(["nearest", "bilinear", "area"]))
    left, top = data.draw(st.integers(0, w - 1)), data.draw(st.integers(0, h - 1))
    options = {
        "resize": resize,
        "antialias": resize == "bilinear" and data.draw(st.booleans()),
        "fit": data.draw(st.sampled_from(["stretch", "letterbox", "crop"])),
        "crop": data.draw(
            st.sampled_from([None])
            | st.tuples(
                st.just(left), st.just(top), st.integers(left + 1, w), st.integers(top + 1, h)
            )
        ),
        "mean": data.draw(values),
        "std": data.draw(values),
        "scale": data.draw(st.sampled_from([1 / 255, 1 / 127.5])),
        "order": order,
        "source": data.draw(st.sampled_from(["rgb", "bgr"])),
        "pad": data.draw(st.sampled_from([0, 114, 255])),
    }
    given = LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))](image)
    layout = data.draw(st.sampled_from(["nchw", "nhwc"]))
    found = prepare(given, size, layout=layout, **options).tensor[0]
    found = found if layout == "nchw" else found.permute(2, 0, 1)
    torch.testing.assert_close(
        found.double(), reference(image, size, **options), rtol=0, atol=TOLERANCE / 255 * 8
    )


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((1, 1), (7, 5)),
        ((10000, 3), (31, 17)),
        ((2, 10000), (5, 640)),
        ((3, 9999), (1, 1)),
        ((1, 400), (33, 1)),
        ((5, 7), (1, 3000)),
        ((1080, 1920), (640, 640)),
    ],
)
@pytest.mark.parametrize("resize", ["nearest", "bilinear", "area", "antialias"])
def test_extreme_sizes(prepare, shape, size, resize):
    image = picture(*shape)
    options = {"antialias": True} if resize == "antialias" else {"resize": resize}
    found = prepare(image, size, **options, scale=1).tensor[0]
    expected = reference(image, size, **options, scale=1)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE)


@given(h=SIZES, w=SIZES, size=st.tuples(SIZES, SIZES))
@example(h=5, w=47, size=(5, 2))
def test_nearest_takes_torchs_pixel(prepare, h, w, size):
    """Every level is its own: one wrong pixel would show."""
    image = (np.arange(h * w * 3) * 7919 % 251).astype(np.uint8).reshape(h, w, 3)
    found = prepare(image, size, resize="nearest", scale=1).tensor[0]
    assert torch.equal(found.double(), reference(image, size, resize="nearest", scale=1))


@pytest.mark.parametrize("resize", ["nearest", "bilinear", "area", "antialias"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("order", ["rgb", "bgr", "gray"])
def test_dtypes_are_roundings_of_one_number(prepare, resize, layout, order):
    image = picture(41, 67)
    options = {"layout": layout, "order": order, "mean": 0.5, "std": 0.25}
    options |= {"antialias": True} if resize == "antialias" else {"resize": resize}
    exact = prepare(image, (35, 50), **options).tensor
    for dtype in (torch.float16, torch.bfloat16):
        half = prepare(image, (35, 50), dtype=dtype, **options).tensor
        assert half.dtype == dtype
        assert torch.equal(half, exact.to(dtype))
    del options["mean"], options["std"]
    exact = prepare(image, (35, 50), scale=1, **options).tensor
    levels = prepare(image, (35, 50), dtype=torch.uint8, **options).tensor
    assert torch.equal(levels, exact.round().clamp(0, 255).to(torch.uint8))


def test_uint8_rounds_halves_to_even_and_is_limited(prepare):
    image = np.array([[[0], [1], [2], [3], [200]]], dtype=np.uint8)
    found = prepare(image, (1, 5), order="gray", scale=2.5, mean=2.0, dtype=torch.uint8)
    # -2, 0.5, 3, 5.5, 498
    assert found.tensor.flatten().tolist() == [0, 0, 3, 6, 255]


@pytest.mark.parametrize("shape", [(300, 400), (97, 131), (30, 20)])
def test_pillow_is_a_level_away_at_most(prepare, shape):
    image = picture(*shape)
    for size in ((64, 77), (200, 201), (3, 500)):
        found = prepare(image, size, antialias=True, dtype=torch.uint8, layout="nhwc").tensor[0]
        pillow = Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR)
        assert np.abs(found.numpy().astype(int) - np.asarray(pillow)).max() <= 1


@pytest.mark.parametrize(
    ("antialias", "expected"),
    [(True, [38.0217, 49.2236, 61.8474]), (False, [22.0316, 33.6214, 47.0016])],
)
def test_antialias_is_another_picture(prepare, antialias, expected):
    """A ramp whose first row is known; it is not whole, so each level is taken apart and added."""
    ramp = torch.arange(64.0).reshape(8, 8) ** 1.5
    total = torch.zeros(3)
    rest = ramp.double()
    for unit in (2.0, 2.0**-7, 2.0**-15):
        part = (rest / unit).floor().clamp(0, 255)
        rest = rest - part * unit
        options = {"order": "gray", "scale": unit, "antialias": antialias}
        total += prepare(part.to(torch.uint8), 3, **options).tensor[0, 0, 0]
    torch.testing.assert_close(total, torch.tensor(expected), rtol=0, atol=1e-3)


def test_a_batch_of_unequal_images(prepare):
    images = [picture(h, w, c, h) for h, w, c in ((5, 9, 3), (200, 31, 1), (1, 1, 4), (64, 64, 3))]
    crops = [(1, 1, 9, 5), (0, 0, 31, 200), (0, 0, 1, 1), (10, 20, 30, 50)]
    batch = prepare(images, (24, 17), crop=crops, fit="letterbox")
    assert batch.tensor.shape == (4, 3, 24, 17)
    for i, (image, crop) in enumerate(zip(images, crops, strict=True)):
        alone = prepare(image, (24, 17), crop=crop, fit="letterbox")
        assert torch.equal(batch.tensor[i], alone.tensor[0])
        assert batch.geometry[i] == alone.geometry[0]
    frames = np.stack([images[3]] * 2)
    assert torch.equal(*prepare(frames, 20).tensor)
    assert prepare([], 20).tensor.shape == (0, 3, 20, 20)


@pytest.mark.parametrize("channels", [0, 1])
def test_gray_is_three_equal_channels(prepare, channels):
    gray = (np.arange(37 * 53) % 251).astype(np.uint8).reshape(37, 53)
    found = prepare(gray[..., None] if channels else gray, (37, 53), scale=1).tensor
    assert found.shape == (1, 3, 37, 53)
    assert all(torch.equal(plane, torch.from_numpy(gray).float()) for plane in found[0])


def test_channels_first(prepare):
    image = picture(21, 34)
    expected = prepare(image, 16).tensor
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))
    for first in (planes, torch.from_numpy(planes)):
        assert torch.equal(prepare(first, 16, channels="first").tensor, expected)


def test_16_bits(prepare):
    wide = np.random.default_rng(0).integers(0, 65536, (23, 29, 3), dtype=np.uint16)
    wide[0, 0] = (0, 65535, 128)
    expected = prepare(np.rint(wide / 257).astype(np.uint8), 16).tensor
    for image in (wide, wide.astype(">u2"), torch.from_numpy(wide)):
        assert torch.equal(prepare(image, 16).tensor, expected)


def test_one_thread_or_two_write_the_same_bits(prepare):
    image = picture(700, 900)
    threads = torch.get_num_threads()
    try:
        for options in ({}, {"antialias": True}, {"resize": "area"}, {"resize": "nearest"}):
            results = []
            for count in (1, 2, 5):
                torch.set_num_threads(count)
                results.append(prepare(image, (301, 407), **options).tensor)
            assert torch.equal(results[0], results[1])
            assert torch.equal(results[0], results[2])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bfloat16])
def test_out_is_written_where_it_lies(prepare, dtype):
    image = picture(50, 60)
    options = {"fit": "letterbox", "pad": 7}
    expected = prepare(image, (20, 33), dtype=dtype, **options).tensor
    large = torch.full((2, 5, 60, 70), 77, dtype=dtype)
    out = large[1:, 1:4, 3:43:2, 2:68:2]
    found = prepare(image, (20, 33), out=out, **options)
    assert found.tensor is out
    assert torch.equal(out, expected)
    out.fill_(77)
    assert (large == 77).all(), "something outside was written"
    last = torch.empty(1, 3, 20, 33, dtype=dtype).to(memory_format=torch.channels_last)
    assert torch.equal(prepare(image, (20, 33), out=last, **options).tensor, expected)
    assert not last.is_contiguous()


def test_the_image_is_not_written_and_may_be_read_only(prepare):
    image = picture(40, 50)
    before = image.copy()
    image.flags.writeable = False
    prepare(image, 32)
    assert np.array_equal(image, before)


@pytest.mark.parametrize("where", ["end", "start"])
def test_nothing_is_read_outside_the_image(prepare, where):
    """The image touches a page that must not be read: a stray load would end the process."""
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    for h, w, c in (
        (3, 2, 3),
        (2, 3, 3),
        (7, 19, 3),
        (5, 33, 4),
        (4, 40, 1),
        (1, 1, 3),
        (9, 64, 3),
    ):
        memory = mmap.mmap(-1, 3 * page)
        view = np.frombuffer(memory, np.uint8)
        first = view.ctypes.data
        for guard in (first, first + 2 * page):
            assert libc.mprotect(ctypes.c_void_p(guard), page, 0) == 0
        size = h * w * c
        start = 2 * page - size if where == "end" else page
        image = view[start : start + size].reshape(h, w, c)
        image[...] = picture(h, w, c)
        for options in ({}, {"antialias": True}, {"resize": "area"}, {"resize": "nearest"}):
            for target in ((4, 5), (30, 77)):
                found = prepare(image, target, **options, scale=1).tensor[0]
                expected = reference(picture(h, w, c), target, **options, scale=1)
                torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE)
        for guard in (first, first + 2 * page):
            libc.mprotect(ctypes.c_void_p(guard), page, 3)
        del view, image
        memory.close()


def test_offsets_of_more_than_32_bits(prepare):
    """Nearly all of the memory is never touched, so that none is needed for it."""
    h, w = 36001, 40000
    lazily = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, named since Python 3.13
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | lazily
    memory = mmap.mmap(-1, h * w * 3, flags=flags)
    image = np.frombuffer(memory, np.uint8).reshape(h, w, 3)
    image[h // 2, w // 2] = (1, 2, 3)
    image[-1, -2:] = (4, 5, 6)
    found = prepare(image, (3, 1), resize="nearest", scale=1).tensor[0, :, 1, 0]
    assert found.tolist() == [1, 2, 3]
    for options in ({}, {"antialias": True}, {"resize": "area"}):
        found = prepare(image, 1, crop=(w - 2, h - 1, w, h), scale=1, **options).tensor.flatten()
        torch.testing.assert_close(found, torch.tensor([4.0, 5.0, 6.0]))
    del image
    memory.close()


@pytest.mark.parametrize("photo", [RETINA, MOTORCYCLE], ids=["retina", "motorcycle"])
def test_photographs(prepare, asset, photo):
    path = asset("scikit-image", *photo)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    for options in ({"antialias": True}, {}, {"resize": "area"}, {"fit": "letterbox", "pad": 114}):
        found = prepare(path, (224, 224), **options, scale=1).tensor[0]
        expected = reference(pixels, (224, 224), **options, scale=1)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE)


def test_the_astronaut_is_pillows(prepare, astronaut):
    with Image.open(astronaut) as image:
        small = np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR)).astype(int)
        found = prepare(image, 224, antialias=True, dtype=torch.uint8, layout="nhwc").tensor[0]
    assert np.abs(found.numpy() - small).max() <= 1
