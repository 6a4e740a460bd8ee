"""The axes of a copy between two strided tensors, in the order in which memory likes them."""

from torchmojo._glue.numbers import Numbers
from torchmojo._glue.python import word

comptime MAX_NDIM = 64
"""The most axes that a tensor has; torch and NumPy stop there too."""


struct Plan(Copyable):
    """Axes of a copy, slowest output axis first, joined where both sides allow it.

    Steps are in bytes. Output steps are positive: an axis that runs backwards is turned round.
    """

    var dst: Int
    """Address of the output's first element in this order."""
    var src: Int
    """Address of the input's element that goes there."""
    var sizes: Numbers[MAX_NDIM]
    """Sizes, each 2 or more."""
    var dst_steps: Numbers[MAX_NDIM]
    """Steps of the output, falling."""
    var src_steps: Numbers[MAX_NDIM]
    """Steps of the input; any numbers."""
    var count: Int
    """Number of axes; 0 for one element, negative for none."""

    def __init__(
        out self, dst: Int, src: Int, ndim: Int, sizes: Int, dst_steps: Int, src_steps: Int
    ):
        """Plans a copy.

        Args:
            dst: Address of the output's first element.
            src: Address of the input's first element.
            ndim: Number of axes, at most `MAX_NDIM`.
            sizes: Address of the sizes.
            dst_steps: Address of the output's steps.
            src_steps: Address of the input's steps.
        """
        self.dst = dst
        self.src = src
        self.sizes = Numbers[MAX_NDIM](fill=0)
        self.dst_steps = Numbers[MAX_NDIM](fill=0)
        self.src_steps = Numbers[MAX_NDIM](fill=0)
        self.count = 0
        for i in range(ndim):
            var size = word(sizes, 8 * i)
            if size < 1:
                self.count = -1
                return
            if size != 1:
                self._add(size, word(dst_steps, 8 * i), word(src_steps, 8 * i))
        self._join()

    def _add(mut self, size: Int, dst_step: Int, src_step: Int):
        """Adds an axis in order of falling output step."""
        var to = dst_step
        var come = src_step
        if to < 0:
            self.dst += (size - 1) * to
            self.src += (size - 1) * come
            to = -to
            come = -come
        var at = self.count
        while at > 0 and self.dst_steps[at - 1] < to:
            self._put(at, self.sizes[at - 1], self.dst_steps[at - 1], self.src_steps[at - 1])
            at -= 1
        self._put(at, size, to, come)
        self.count += 1

    @always_inline
    def _put(mut self, at: Int, size: Int, dst_step: Int, src_step: Int):
        self.sizes[at] = size
        self.dst_steps[at] = dst_step
        self.src_steps[at] = src_step

    def _join(mut self):
        """Joins neighbours that step as one axis on both sides."""
        var last = -1
        for i in range(self.count):
            var size = self.sizes[i]
            var to = self.dst_steps[i]
            var come = self.src_steps[i]
            if (
                last >= 0
                and self.dst_steps[last] == to * size
                and self.src_steps[last] == come * size
            ):
                self._put(last, self.sizes[last] * size, to, come)
            else:
                last += 1
                self._put(last, size, to, come)
        self.count = last + 1
