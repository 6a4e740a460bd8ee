"""Loads a package of kernels: two modules, named axes, layouts, optional tensors, any rank.

Run it: ``python examples/02_kernel_package/main.py``
"""

from pathlib import Path

import torch

import torchmojo

FILTERS = Path(__file__).with_name("filters")
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def main():
    filters = torchmojo.load(FILTERS)
    print(filters)

    image = torch.randint(0, 256, (2, 480, 640, 3), dtype=torch.uint8)
    planes = image.permute(0, 3, 1, 2) / 255
    out = torch.empty(2, 3, 480, 640, memory_format=torch.channels_last)
    filters.normalize(out, image)
    torch.testing.assert_close(out, planes)
    filters.normalize(out, image, mean=MEAN, std=STD)
    torch.testing.assert_close(out, (planes - MEAN[:, None, None]) / STD[:, None, None])
    print("proved: normalize equals torch, with mean and std and without")

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = torch.empty_like(out)
    filters.normalize(alone, image, MEAN, STD)
    torch.set_num_threads(threads)
    assert torch.equal(alone, out)
    print(f"proved: one thread and {threads} give the same numbers")

    flipped = torch.empty_like(out)
    filters.normalize(flipped, image.numpy()[:, :, ::-1], MEAN, STD)
    assert torch.equal(flipped, out.flip(3))
    print("proved: a mirrored NumPy view is read as it lies")

    with torchmojo.fallback("error"):  # else the output is copied in and back, with a warning
        refused(torchmojo.LayoutError, lambda: filters.normalize(out.contiguous(), image))
    refused(torchmojo.ShapeError, lambda: filters.normalize(out, image[..., :2]))
    refused(torchmojo.ShapeError, lambda: filters.normalize(out, image[:, 1:]))

    x = torch.ones(3, 4, 5)
    x[0, 0, 0], x[2, 3, 4], x[1, 1, 1] = float("nan"), float("inf"), -float("inf")
    for tensor in (x, x[0], x[0, 0], x[0, 0, 0], x.double().transpose(0, 2)):
        assert filters.count_nonfinite(tensor) == int((~tensor.isfinite()).sum())
    print("proved: count_nonfinite takes 0 to 3 axes, two dtypes and a transposed tensor")


def refused(kind, call):
    try:
        call()
    except kind as error:
        print(f"proved: {kind.__name__}: {error}")
    else:
        raise AssertionError(f"the call was not refused with {kind.__name__}")


if __name__ == "__main__":
    main()
