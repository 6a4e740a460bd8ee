"""Files and Pillow images: one rule for each kind, and no file that harms."""

import io
import os
import struct
import subprocess
import sys
import textwrap
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from torchmojo.errors import ImageError

ORIENTATION = 0x0112


def levels(prepare, image, size, **options):
    """Prepare an image without resizing it: [h, w, c] of bytes."""
    prepared = prepare(image, size, resize="nearest", layout="nhwc", dtype=torch.uint8, **options)
    return prepared.tensor[0].numpy()


def colours(h=9, w=13, c=3):
    return np.random.default_rng(0).integers(0, 256, (h, w, c), dtype=np.uint8)


def palette():
    return Image.fromarray(colours()).quantize(16)


def clear_palette():
    image = palette()
    image.info["transparency"] = 3
    return image


def wide(mode):
    values = np.arange(9 * 13).reshape(9, 13) * 560
    return Image.fromarray(values.astype("uint16" if mode == "I;16" else "int32"))


MADE = {
    "RGB": (lambda: Image.fromarray(colours()), colours),
    "L": (lambda: Image.fromarray(colours(c=1)[..., 0]), lambda: colours(c=1)),
    "RGBA": (lambda: Image.fromarray(colours(c=4)), lambda: colours(c=4)[..., :3]),
    "LA": (lambda: Image.fromarray(colours(c=2)), lambda: colours(c=2)[..., :1]),
    "P": (palette, lambda: np.asarray(palette().convert("RGB"))),
    "P clear": (clear_palette, lambda: np.asarray(palette().convert("RGB"))),
    "PA": (lambda: palette().convert("PA"), lambda: np.asarray(palette().convert("RGB"))),
    "1": (
        lambda: Image.fromarray(colours(c=1)[..., 0] > 127),
        lambda: (colours(c=1) > 127).astype(np.uint8) * 255,
    ),
    "CMYK": (
        lambda: Image.fromarray(colours()).convert("CMYK"),
        colours,  # Pillow's CMYK of a colour has no black
    ),
    "I;16": (
        lambda: wide("I;16"),
        lambda: np.rint(np.arange(9 * 13).reshape(9, 13, 1) * 560 / 257).astype(np.uint8),
    ),
    "I": (
        lambda: wide("I"),
        lambda: np.rint(np.arange(9 * 13).reshape(9, 13, 1) * 560 / 257).astype(np.uint8),
    ),
}


@pytest.mark.parametrize("mode", MADE)
def test_a_pillow_image_of_each_mode(prepare, mode):
    image, expected = (make() for make in MADE[mode])
    assert image.mode == mode.split()[0]
    found = levels(prepare, image, (9, 13))
    assert np.array_equal(found, np.broadcast_to(expected, (9, 13, 3)))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("RGB", "png"),
        ("RGB", "bmp"),
        ("RGB", "webp"),
        ("RGBA", "png"),
        ("LA", "png"),
        ("L", "png"),
        ("P", "png"),
        ("P clear", "png"),
        ("P clear", "gif"),
        ("1", "png"),
        ("I;16", "png"),
        ("I;16", "tiff"),
        ("I", "tiff"),
        ("CMYK", "tiff"),
    ],
)
def test_files_follow_the_same_rules(prepare, tmp_path, mode, kind):
    image, expected = (make() for make in MADE[mode])
    path = tmp_path / f"image.{kind}"
    image.save(path, **({"lossless": True} if kind == "webp" else {}))
    for where in (path, str(path)):
        found = levels(prepare, where, (9, 13))
        assert np.array_equal(found, np.broadcast_to(expected, (9, 13, 3)))


def test_arrays_follow_the_same_rules(prepare):
    for mode, array in {"L": colours(c=1), "RGB": colours(), "RGBA": colours(c=4)}.items():
        image = MADE[mode][0]()
        assert np.array_equal(levels(prepare, array, (9, 13)), levels(prepare, image, (9, 13)))
    bgr = colours(c=4)[..., [2, 1, 0, 3]]
    expected = colours(c=4)[..., :3]
    assert np.array_equal(levels(prepare, bgr, (9, 13), source="bgr"), expected)
    # What a Pillow image is, it says itself.
    image = Image.fromarray(colours())
    assert np.array_equal(levels(prepare, image, (9, 13), source="bgr"), colours())


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["png", "jpeg", "tiff", "webp"])
def test_an_upright_image(prepare, tmp_path, orientation, kind):
    image = Image.fromarray(colours(8, 16))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path = tmp_path / "image"
    image.save(path, kind, exif=exif)
    with Image.open(path) as opened:
        upright = ImageOps.exif_transpose(opened)
    size = (16, 8) if orientation > 4 else (8, 16)
    assert upright.size == size[::-1]
    found = levels(prepare, path, size)
    assert np.array_equal(found, np.asarray(upright.convert("RGB")))
    (geometry,) = prepare(path, 32, fit="letterbox").geometry
    assert geometry.source == size


def test_a_turned_photograph_stands_up(prepare, tmp_path):
    blocks = np.repeat(np.array([[10, 60, 90]], np.uint8), 8, 1).repeat(8, 0)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    path = tmp_path / "turned.jpg"
    Image.fromarray(blocks).save(path, exif=exif, quality=95)
    found = levels(prepare, path, (24, 8))
    assert np.abs(found[::8, 0, 0].astype(int) - [10, 60, 90]).max() <= 3


def test_a_turned_png_stands_up(prepare, tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    path = tmp_path / "turned.png"
    Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3)).save(path, exif=exif)
    found = levels(prepare, path, (3, 2))
    assert found[0].tolist() == [[9, 10, 11], [0, 1, 2]]


def test_the_first_frame(prepare, tmp_path):
    path = tmp_path / "moving.gif"
    frames = [Image.new("L", (13, 9), level) for level in (40, 200)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert (levels(prepare, path, (9, 13)) == 40).all()


# --- refusals -----------------------------------------------------------------------------------


def refusal(prepare, image, **options):
    with pytest.raises(ImageError) as caught:
        prepare(image, 8, **options)
    return str(caught.value)


def test_kinds_that_are_not_read(prepare):
    assert refusal(prepare, Image.new("F", (3, 3))) == (
        "prepare: images: wanted 8 or 16 bits a channel, given a Pillow image of mode F; "
        "bring the values to 0..255 and pass an array"
    )
    negative = Image.fromarray(np.full((3, 3), -1, dtype=np.int32))
    assert "of mode I" in refusal(prepare, negative)


def test_a_program_is_not_run(prepare, tmp_path):
    path = tmp_path / "image.eps"
    Image.fromarray(colours()).save(path)
    assert "EPS is a program, which Pillow would have Ghostscript run" in refusal(prepare, path)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"GIF89a"])
def test_a_file_that_is_no_image(prepare, tmp_path, content):
    path = tmp_path / "image.png"
    path.write_bytes(content)
    text = refusal(prepare, path)
    assert text.startswith("prepare: images: wanted a")
    assert str(path) in text


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "bmp", "tiff", "webp"])
def test_a_file_that_was_cut_off(prepare, tmp_path, kind):
    path = tmp_path / "image"
    Image.fromarray(colours(90, 130)).save(path, kind)
    path.write_bytes(path.read_bytes()[:-400])
    text = refusal(prepare, [np.zeros((2, 2), np.uint8), path])
    assert text.startswith("prepare: images[1]: wanted a")
    assert str(path) in text


def png(width, height):
    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def test_a_bomb(prepare, tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(png(60000, 60000))
    assert "DecompressionBombError: Image size (3600000000 pixels)" in refusal(prepare, path)


def test_an_image_without_pixels(prepare, tmp_path):
    path = tmp_path / "empty.png"
    path.write_bytes(png(0, 5))
    assert "prepare: images: wanted a" in refusal(prepare, path)
    with pytest.raises(ValueError, match=r"prepare: images: wanted pixels, given \(5, 0, 3\)"):
        prepare(Image.new("RGB", (0, 5)), 8)


def test_a_missing_file_is_the_systems_error(prepare, tmp_path):
    with pytest.raises(FileNotFoundError):
        prepare(tmp_path / "none.png", 8)
    with pytest.raises(IsADirectoryError):
        prepare(tmp_path, 8)


def test_what_pillow_is_for(prepare, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match='a file needs Pillow: pip install "torchmojo'):
        prepare(tmp_path / "image.png", 8)
    assert prepare(colours(), 8).tensor.shape == (1, 3, 8, 8)


def test_damaged_files_raise_one_error(prepare, tmp_path):
    """In a child, as a decoder might end the process."""
    for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp"):
        for mode in ("RGB", "P"):
            made = io.BytesIO()
            exif = Image.Exif()
            exif[ORIENTATION] = 6
            image = MADE[mode][0]()
            if mode == "P" and kind in ("jpeg", "webp"):
                continue
            image.save(made, kind, **({} if kind in ("gif", "bmp") else {"exif": exif}))
            (tmp_path / f"{mode}.{kind}").write_bytes(made.getvalue())
    program = """
        import pathlib, random, sys, warnings
        warnings.simplefilter("ignore")
        from PIL import Image
        from torchmojo.vision import prepare
        from torchmojo.errors import ImageError
        Image.MAX_IMAGE_PIXELS = 10**6  # or most of the time goes into black pixels
        shuffle = random.Random(0)
        folder = pathlib.Path(sys.argv[1])
        refused = read = 0
        for path in sorted(folder.iterdir()):
            whole = path.read_bytes()
            for _ in range(100):
                data = bytearray(whole)
                for _ in range(shuffle.choice((1, 2, 8))):
                    data[shuffle.randrange(min(len(data), 400))] = shuffle.randrange(256)
                del data[len(data) - shuffle.choice((0, 0, 1, 40)) :]
                target = folder / "damaged"
                target.write_bytes(data)
                try:
                    prepare(target, 8)
                    read += 1
                except ImageError:
                    refused += 1
        print(refused, read)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), tmp_path],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused, read = map(int, done.stdout.split())
    assert refused > 100
    assert read > 100
