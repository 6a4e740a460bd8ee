"""The table that detections are gathered in, however many there are."""

from std.math import exp
from std.utils import IndexList

from torchmojo import OwnedTensor

comptime FIXED = 7
"""Columns of every table: x0 y0 x1 y1, score, class and picture; what else there is follows."""


struct Rows(Movable):
    """Detections, one a row, in float64: corners, indices and scores fit it without rounding."""

    var columns: Int
    var numbers: List[Float64]

    def __init__(out self, extra: Int):
        """Makes an empty table.

        Args:
            extra: Columns after the fixed ones.
        """
        self.columns = FIXED + extra
        self.numbers = List[Float64]()

    def __init__(out self, *, deinit move: Self):
        """Takes over another one's memory.

        Args:
            move: The former owner.
        """
        self.columns = move.columns
        self.numbers = move.numbers^

    def add(
        mut self,
        centre: SIMD[DType.float64, 2],
        size: SIMD[DType.float64, 2],
        score: Float64,
        label: Int,
        picture: Int,
    ):
        """Begins a row.

        Args:
            centre: Middle of the box, across and down.
            size: Width and height.
            score: Its score.
            label: Its class.
            picture: Where in the batch it is.
        """
        var half = size * 0.5
        self.corners(centre - half, centre + half, score, label, picture)

    def corners(
        mut self,
        first: SIMD[DType.float64, 2],
        last: SIMD[DType.float64, 2],
        score: Float64,
        label: Int,
        picture: Int,
    ):
        """Begins a row.

        Args:
            first: Left and top.
            last: Right and bottom.
            score: Its score.
            label: Its class.
            picture: Where in the batch it is.
        """
        for x in [first[0], first[1], last[0], last[1], score, Float64(label), Float64(picture)]:
            self.numbers.append(x)

    def more(mut self, x: Float64):
        """Goes on with a row.

        Args:
            x: The next number of the extra columns.
        """
        self.numbers.append(x)

    def finish(deinit self) raises -> OwnedTensor[DType.float64, 2]:
        """Hands the table over.

        Returns:
            One row a detection.
        """
        var count = len(self.numbers) // self.columns
        var made = OwnedTensor[DType.float64, 2](IndexList[2](count, self.columns))
        var view = made.view()
        for i in range(count):
            for j in range(self.columns):
                view[i, j] = self.numbers[i * self.columns + j]
        return made^


def sigmoid[wide: DType](x: Scalar[wide]) -> Scalar[wide]:
    """Returns the probability of a logit.

    Parameters:
        wide: float32 or float64.

    Args:
        x: Any number.

    Returns:
        0 to 1.
    """
    comptime assert wide.is_floating_point(), "a logit is a float"
    return 1 / (1 + exp(-x))
