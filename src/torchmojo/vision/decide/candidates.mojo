"""The boxes that may be kept, best first, and in which groups they compete."""

from std.memory import Pointer, bitcast

from torchmojo import Tensor

from order import address_of, descending_key, key_type, sort_stably


def wide_type[dtype: DType]() -> DType:
    """Returns what boxes are compared in: float64 for float64, else float32."""
    return DType.float64 if dtype == DType.float64 else DType.float32


@always_inline
def widen[dtype: DType, //, wide: DType](ref x: Scalar[dtype]) -> Scalar[wide]:
    """Reads a number in the type in which boxes are compared.

    Parameters:
        dtype: float16, bfloat16, float32 or float64.
        wide: `wide_type` of it.

    Args:
        x: Any number, where it lies.

    Returns:
        The same number, a subnormal one too.
    """
    comptime if dtype == DType.bfloat16:
        # By bits: what LLVM does with a bfloat16 value loses subnormals where it has AVX512-BF16.
        var bits = Pointer(to=x).unsafe_bitcast[UInt16]()[].cast[DType.uint32]() << 16
        return bitcast[DType.float32](bits).cast[wide]()
    else:
        return x.cast[wide]()


@always_inline
def corners_of[dtype: DType, //, wide: DType](boxes: Tensor[dtype, 2], i: Int) -> SIMD[wide, 4]:
    """Reads a box in the type in which boxes are compared.

    Parameters:
        dtype: float16, bfloat16, float32 or float64.
        wide: `wide_type` of it.

    Args:
        boxes: Corners `[n, 4]`.
        i: Which one.

    Returns:
        Its corners.
    """
    return SIMD[wide, 4](
        widen[wide](boxes[i, 0]),
        widen[wide](boxes[i, 1]),
        widen[wide](boxes[i, 2]),
        widen[wide](boxes[i, 3]),
    )


struct Candidates[wide: DType](Movable, Sized):
    """Boxes without NaN whose score passes, by score, and by index where scores are equal.

    Parameters:
        wide: What boxes are compared in.
    """

    var index: List[Int32]
    """Which box each candidate is."""

    def __init__[
        dtype: DType
    ](
        out self,
        boxes: Tensor[dtype, 2],
        scores: Tensor[dtype, 1],
        score_threshold: Optional[Float64],
    ):
        """Chooses candidates and sorts them.

        Args:
            boxes: Corners `[n, 4]`.
            scores: Scores `[n]`.
            score_threshold: What a score must exceed, as `scores > score_threshold` in torch.
        """
        comptime key = key_type[Self.wide]()
        var n = boxes.dim(0)
        var keys = List[Scalar[key]](length=n, fill=0)
        self.index = List[Int32](length=n, fill=0)
        var k = address_of(keys)
        var to = address_of(self.index)
        var least = Scalar[dtype](score_threshold.or_else(0)).cast[Self.wide]()
        var count = 0
        for i in range(n):
            var score = widen[Self.wide](scores[i])
            var box = corners_of[Self.wide](boxes, i)
            # A NaN is the only number that is not itself.
            var good = box.eq(box).reduce_and() and score == score
            if score_threshold:
                good = good and score > least
            k[unsafe_offset=count] = descending_key(score)
            to[unsafe_offset=count] = Int32(i)
            count += 1 if good else 0
        keys.resize(count, 0)
        self.index.resize(count, 0)
        sort_stably(keys, self.index)

    def __init__(out self, *, deinit move: Self):
        """Takes over another one's memory.

        Args:
            move: The former owner.
        """
        self.index = move.index^

    def __len__(self) -> Int:
        """Tells how many candidates there are."""
        return len(self.index)

    def corners[
        dtype: DType
    ](self, boxes: Tensor[dtype, 2], order: List[Int32]) -> List[Scalar[Self.wide]]:
        """Copies the candidates' corners, as they are read one after the other.

        Args:
            boxes: Corners `[n, 4]`.
            order: In which order: ranks of candidates.

        Returns:
            Four numbers a candidate.
        """
        var n = len(order)
        var copied = List[Scalar[Self.wide]](length=4 * n, fill=0)
        var to = address_of(copied)
        for i in range(n):
            var box = Int(self.index[Int(order[i])])
            to.unsafe_store(4 * i, corners_of[Self.wide](boxes, box))
        return copied^

    def by_group(self, groups: Tensor[DType.int64, 2]) -> List[Int32]:
        """Brings together the candidates of each group.

        Args:
            groups: Group of each box `[n, g]`: two boxes are of one group where all `g` are equal.

        Returns:
            Ranks of candidates: group by group, within a group the best first.
        """
        var n = len(self)
        var ranks = List[Int32](length=n, fill=0)
        for i in range(n):
            ranks[i] = Int32(i)
        for column in range(groups.dim(1)):
            var keys = List[UInt64](length=n, fill=0)
            for i in range(n):
                keys[i] = UInt64(groups[Int(self.index[Int(ranks[i])]), column])
            sort_stably(keys, ranks)
        return ranks^

    def same_group(self, groups: Tensor[DType.int64, 2], a: Int32, b: Int32) -> Bool:
        """Tells whether two candidates compete.

        Args:
            groups: Group of each box `[n, g]`.
            a: Rank of a candidate.
            b: Rank of another one.

        Returns:
            Whether all their numbers are equal.
        """
        for column in range(groups.dim(1)):
            if groups[Int(self.index[Int(a)]), column] != groups[Int(self.index[Int(b)]), column]:
                return False
        return True
