"""Compiles one Mojo function and calls it on torch tensors and NumPy arrays.

Run it: ``python examples/01_first_kernel/main.py``
"""

from pathlib import Path

import torch

import torchmojo

KERNELS = Path(__file__).with_name("kernels.mojo")


def main():
    kernels = torchmojo.load(KERNELS)
    print(kernels.scaled_add)

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        a, b = torch.randn(1000).to(dtype), torch.randn(1000).to(dtype)
        out = torch.empty_like(a)
        address, version = out.data_ptr(), out._version
        kernels.scaled_add(out, a, b, 0.5)
        torch.testing.assert_close(out, a + 0.5 * b)
        assert out.data_ptr() == address, "the kernel wrote torch's own memory"
        assert out._version == version + 1, "autograd was told of the write"
    print("proved: equal to torch in float32, float64 and bfloat16, in torch's memory")

    # A step in a slice and a NumPy array need no copy: the kernel walks their strides.
    whole = torch.arange(8.0)
    kernels.scaled_add(whole[::2], whole[1::2], whole[1::2].numpy(), alpha=1.0)
    assert whole.tolist() == [2.0, 1.0, 6.0, 3.0, 10.0, 5.0, 14.0, 7.0]
    print("proved: strides and NumPy arrays are taken as they lie")

    try:
        kernels.scaled_add(torch.empty(3), torch.ones(4), torch.ones(4), 1.0)
    except torchmojo.ShapeError as error:
        print(f"proved: wrong sizes are refused: {error}")
    else:
        raise AssertionError("a call with wrong sizes was not refused")


if __name__ == "__main__":
    main()
