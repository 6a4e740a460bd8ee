"""Attention as one Mojo kernel with a gradient, beside torch's own: how exact, and how fast.

Run it: ``python examples/04_fused_attention/main.py``
"""

import os
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import torchmojo

KERNELS = Path(__file__).with_name("kernels.mojo")
BATCH, HEADS, WIDTH = 1, 8, 64
DTYPES = (torch.float32, torch.bfloat16)

# --- the operator --------------------------------------------------------------------------------

kernels = torchmojo.load(KERNELS, dtypes=["float32", "bfloat16"])


@torchmojo.op("fused::attention", kernels.attention)
def attention(q, k, v, causal: bool = False, scale: float | None = None):
    # The second result, the logarithm of the softmax's denominators, is for the gradient.
    sums = q.new_empty(q.shape[0], q.shape[1], q.shape[2], dtype=torch.float32)
    return torch.empty_like(q), sums


@torchmojo.op("fused::attention_backward", kernels.attention_backward)
def attention_backward(grad, grad_lse, q, k, v, dst, lse, causal=False, scale=None):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


@attention.backward(save=("q", "k", "v", "dst", "lse"))
def attention_gradient(ctx, grad, grad_lse):
    return attention_backward(
        grad, grad_lse, ctx.q, ctx.k, ctx.v, ctx.dst, ctx.lse, ctx.causal, ctx.scale
    )


def with_mojo(q, k, v, causal=True):
    return attention(q, k, v, causal)[0]


def with_torch(q, k, v, causal=True):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


# --- how exact -----------------------------------------------------------------------------------


def make_inputs(length, dtype, seed=0):
    """Give q, k, v and a gradient `[b, h, l, d]`: views as a linear layer leaves them."""
    generator = torch.Generator().manual_seed(seed)
    shape = (BATCH, length, HEADS, WIDTH)
    return [torch.randn(shape, generator=generator).to(dtype).transpose(1, 2) for _ in range(4)]


@torch.no_grad()
def forward_only(attend, q, k, v, grad):
    return attend(q, k, v)


def forward_and_backward(attend, q, k, v, grad, causal=True):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attend(*leaves, causal)
    return out, *torch.autograd.grad(out, leaves, grad)


def prove_exact():
    """Compare result and gradients with torch's in float64."""
    print(f"greatest error against float64, [{BATCH}, {HEADS}, length, {WIDTH}], causal:")
    print("            length    result: Mojo    torch    gradients: Mojo    torch")
    for dtype in DTYPES:
        for length in (16, 127, 1000):
            inputs = make_inputs(length, dtype)
            wanted = forward_and_backward(with_torch, *(x.double() for x in inputs))
            errors = []
            for attend in (with_mojo, with_torch):
                given = forward_and_backward(attend, *inputs)
                off = [
                    float((g - w).detach().abs().max()) for g, w in zip(given, wanted, strict=True)
                ]
                errors.append((off[0], max(off[1:])))
            (result, slope), (result_torch, slope_torch) = errors
            print(
                f"{str(dtype)[6:]:>10} {length:7} {result:15.1e} {result_torch:8.1e} {slope:18.1e} "
                f"{slope_torch:8.1e}"
            )
            assert result <= 3 * result_torch and slope <= 3 * slope_torch
    print("proved: result and gradients are as exact as torch's")


# --- how fast ------------------------------------------------------------------------------------


def take_turns(call, inputs, seconds=0.15, rounds=5):
    """Give the median seconds of `call(attend, *inputs)` with each attention; they take turns."""
    attends = (with_mojo, with_torch)
    times = [[] for _ in attends]
    begin = time.perf_counter()
    while len(times[0]) < rounds or time.perf_counter() - begin < seconds:
        for attend, taken in zip(attends, times, strict=True):
            start = time.perf_counter()
            call(attend, *inputs)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def compare_speed(threads):
    torch.set_num_threads(threads)
    print(f"microseconds on {threads} thread(s), causal, load {os.getloadavg()[0]:.1f}, medians:")
    print(
        "            length    forward: Mojo    torch  ratio    and backward: Mojo    torch  ratio"
    )
    lost = []
    for dtype in DTYPES:
        for length in (16, 64, 128, 1024, 2048):
            inputs = make_inputs(length, dtype)
            forward = take_turns(forward_only, inputs)
            both = take_turns(forward_and_backward, inputs)
            cells = f"{str(dtype)[6:]:>10} {length:7}"
            for (mojo, own), width, what in ((forward, 16, "forward"), (both, 21, "both")):
                cells += f" {mojo * 1e6:{width}.0f} {own * 1e6:8.0f} {own / mojo:6.2f}"
                if own < mojo:
                    lost.append(f"{str(dtype)[6:]} {length} {what}")
            print(cells)
    if threads > 1 and os.getloadavg()[0] > 1.5:
        print("(other programs run here: a thread that waits for another one waits for them)")
    print("torch is faster at: " + (", ".join(lost) or "none of them"))


def main():
    print(attention, attention_backward, sep="\n")
    prove_exact()
    threads = torch.get_num_threads()
    try:
        for count in sorted({1, min(2, os.cpu_count() or 1)}):
            compare_speed(count)
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
