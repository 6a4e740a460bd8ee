"""The activation and the loss of a small network, each with the kernel of its gradient.

`bias_gelu` is the tanh form of GELU, as `torch.nn.functional.gelu(x + bias, approximate="tanh")`.
`smooth_cross_entropy` is `torch.nn.functional.cross_entropy(..., label_smoothing=smoothing,
reduction="none")`. No kernel adds numbers in an order that depends on the number of threads.
"""

from std.algorithm import vectorize
from std.math import exp, log
from std.sys import simd_width_of

from torchmojo import MutTensor, Tensor, parallel_for

comptime GRAIN = 16384
"""How many exponentials are worth a thread of their own."""

comptime BLOCK = 64
"""How many columns of a gradient, or rows of a loss, one thread takes at a time."""


def bias_gelu[
    dtype: DType
](
    dst: MutTensor[dtype, 2, "n f"], x: Tensor[dtype, 2, "n f"], bias: Tensor[dtype, 1, "f"]
) where dtype.is_floating_point():
    """Writes `gelu(x + bias)`.

    Parameters:
        dtype: Element type.

    Args:
        dst: Activations `[n, f]`; may be `x` itself.
        x: What a linear layer without a bias gives `[n, f]`.
        bias: Its bias `[f]`.
    """
    var width = dst.dim(1)

    def rows(start: Int, end: Int) {var}:
        for i in range(start, end):

            def columns[n: Int](j: Int) {var}:
                var z = x.load[n](i, j) + bias.load[n](j)
                dst.store(i, j, value=z * _gate(z))

            vectorize[simd_width_of[dtype]()](width, columns)

    parallel_for(rows, dst.dim(0), grain=1 + GRAIN // max(1, width))


def bias_gelu_backward[
    dtype: DType
](
    grad_x: MutTensor[dtype, 2, "n f"],
    grad_bias: MutTensor[dtype, 1, "f"],
    grad: Tensor[dtype, 2, "n f"],
    x: Tensor[dtype, 2, "n f"],
    bias: Tensor[dtype, 1, "f"],
) where dtype.is_floating_point():
    """Writes the gradients of `bias_gelu`.

    A thread takes whole columns, so that each sum over the rows has one owner.

    Parameters:
        dtype: Element type.

    Args:
        grad_x: Gradient of `x` `[n, f]`.
        grad_bias: Gradient of `bias` `[f]`, the sum of the rows of `grad_x`.
        grad: Gradient of the activations `[n, f]`.
        x: As `bias_gelu` was given it `[n, f]`.
        bias: As `bias_gelu` was given it `[f]`.
    """
    var height = x.dim(0)
    var width = x.dim(1)

    def blocks(start: Int, end: Int) {var}:
        var first = start * BLOCK

        def columns[n: Int](k: Int) {var}:
            var j = first + k
            var shift = bias.load[n](j)
            var sum = SIMD[dtype, n](0)
            for i in range(height):
                var z = x.load[n](i, j) + shift
                var gate = _gate(z)
                var slope = gate + z * gate * (1 - gate) * 2 * _inner_slope(z)
                var value = grad.load[n](i, j) * slope
                grad_x.store(i, j, value=value)
                sum += value
            grad_bias.store(j, value=sum)

        vectorize[simd_width_of[dtype]()](min(end * BLOCK, width) - first, columns)

    parallel_for(blocks, _blocks(width), grain=1 + GRAIN // max(1, BLOCK * height))


@always_inline
def _gate[dtype: DType, n: Int](z: SIMD[dtype, n]) -> SIMD[dtype, n]:
    """Returns `(1 + tanh(u)) / 2`, written with one exponential, for the `u` of GELU's tanh form."""
    comptime assert dtype.is_floating_point(), "an exponential"
    var u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
    return 1 / (1 + exp(-2 * u))


@always_inline
def _inner_slope[dtype: DType, n: Int](z: SIMD[dtype, n]) -> SIMD[dtype, n]:
    """Returns the derivative of that `u`."""
    return 0.7978845608028654 * (1 + 0.134145 * z * z)


def smooth_cross_entropy[
    dtype: DType
](
    loss: MutTensor[dtype, 1, "n"],
    logits: Tensor[dtype, 2, "n c"],
    target: Tensor[DType.int64, 1, "n"],
    smoothing: Float64 = 0.0,
) raises where dtype.is_floating_point():
    """Writes the cross-entropy of each row, with the labels smoothed.

    Classes are few and rows are many, so a vector holds one class of several rows.

    Parameters:
        dtype: Element type.

    Args:
        loss: Loss of each row `[n]`.
        logits: Scores `[n, c]`.
        target: Right class of each row, 0 to c - 1 `[n]`.
        smoothing: Share of the probability that is spread over all classes, 0 to 1.
    """
    _check(target, logits.dim(1))
    var classes = logits.dim(1)
    var height = logits.dim(0)
    var scores = logits.transpose(0, 1)
    var right = Scalar[dtype](1 - smoothing)
    var spread = Scalar[dtype](smoothing / Float64(classes))

    def blocks(start: Int, end: Int) {var}:
        var first = start * BLOCK

        def rows[n: Int](k: Int) {var}:
            var i = first + k
            var label = target.load[n](i)
            var peak = _peak[n](scores, i)
            var total = SIMD[dtype, n](0)
            var wanted = SIMD[dtype, n](0)
            for c in range(classes):
                var score = scores.load[n](c, i) - peak
                total += exp(score)
                var hit = label.eq(SIMD[DType.int64, n](c))
                wanted += score * (spread + hit.select(SIMD[dtype, n](right), 0))
            loss.store(i, value=log(total) - wanted)

        vectorize[simd_width_of[dtype]()](min(end * BLOCK, height) - first, rows)

    parallel_for(blocks, _blocks(height), grain=1 + GRAIN // max(1, BLOCK * classes))


def smooth_cross_entropy_backward[
    dtype: DType
](
    grad_logits: MutTensor[dtype, 2, "n c"],
    grad: Tensor[dtype, 1, "n"],
    logits: Tensor[dtype, 2, "n c"],
    target: Tensor[DType.int64, 1, "n"],
    smoothing: Float64 = 0.0,
) raises where dtype.is_floating_point():
    """Writes the gradient of `smooth_cross_entropy`: the softmax less the smoothed labels.

    Parameters:
        dtype: Element type.

    Args:
        grad_logits: Gradient of the scores `[n, c]`.
        grad: Gradient of the losses `[n]`; a mean gives it with stride 0.
        logits: Scores `[n, c]`.
        target: Right class of each row, 0 to c - 1 `[n]`.
        smoothing: As `smooth_cross_entropy` was given it.
    """
    _check(target, logits.dim(1))
    var classes = logits.dim(1)
    var height = logits.dim(0)
    var scores = logits.transpose(0, 1)
    var slopes = grad_logits.transpose(0, 1)
    var right = Scalar[dtype](1 - smoothing)
    var spread = Scalar[dtype](smoothing / Float64(classes))

    def blocks(start: Int, end: Int) {var}:
        var first = start * BLOCK

        def rows[n: Int](k: Int) {var}:
            var i = first + k
            var label = target.load[n](i)
            var peak = _peak[n](scores, i)
            var total = SIMD[dtype, n](0)
            for c in range(classes):
                var part = exp(scores.load[n](c, i) - peak)
                slopes.store(c, i, value=part)
                total += part
            var factor = grad.load[n](i)
            var share = factor / total
            for c in range(classes):
                var hit = label.eq(SIMD[DType.int64, n](c))
                var smooth = spread + hit.select(SIMD[dtype, n](right), 0)
                slopes.store(c, i, value=slopes.load[n](c, i) * share - factor * smooth)

        vectorize[simd_width_of[dtype]()](min(end * BLOCK, height) - first, rows)

    parallel_for(blocks, _blocks(height), grain=1 + GRAIN // max(1, BLOCK * classes))


@always_inline
def _peak[n: Int, dtype: DType](scores: Tensor[dtype, 2], i: Int) -> SIMD[dtype, n]:
    """Returns the greatest score of each of `n` rows; `scores` is `[c, n]`."""
    var peak = scores.load[n](0, i)
    for c in range(1, scores.dim(0)):
        peak = max(peak, scores.load[n](c, i))
    return peak


def _check(target: Tensor[DType.int64, 1], classes: Int) raises:
    """Raises for a class that does not exist: it would be a wrong loss without a word."""
    for i in range(target.dim(0)):
        var label = Int(target[i])
        if label < 0 or label >= classes:
            raise Error(t"target {i} is {label}, wanted 0 to {classes - 1}")


def _blocks(count: Int) -> Int:
    return (count + BLOCK - 1) // BLOCK
