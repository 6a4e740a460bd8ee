"""Views as `TileTensor`, for code that is written against Modular's `layout` package.

A package of its own: `layout` comes with the `max` wheels, and `torchmojo` must compile without it.
A tile has the view's address, sizes and strides, owns nothing and is checked by nobody: `TileTensor`
has no bounds checks, also under `bounds=True`.
"""

from layout import Coord, MixedLayout, TileTensor

from torchmojo import Layout, TensorView


@always_inline
def as_tile[
    m: Bool, w: Bool, dtype: DType, axes: StaticString, l: Layout, o: Origin[mut=m], //
](view: TensorView[w, dtype, 1, axes, l, o]) -> type_of(
    TileTensor(ptr=view.data, layout=MixedLayout(Coord(0), Coord(0)))
):
    """Shares a view of rank 1 as a `TileTensor`; nothing is copied.

    Parameters:
        m: Whether the view can be written (inferred).
        w: Whether the kernel writes it (inferred).
        dtype: Element type (inferred).
        axes: Names of the axes (inferred).
        l: Layout of the view (inferred).
        o: Origin of the memory (inferred).

    Args:
        view: Any view whose strides are not negative, as `TileTensor` asks.

    Returns:
        A tile with run-time sizes and strides, tied to the view's origin.
    """
    return TileTensor(
        ptr=view.data,
        layout=MixedLayout(Coord(view.dim(0)), Coord(view.stride(0))),
    )


@always_inline
def as_tile[
    m: Bool, w: Bool, dtype: DType, axes: StaticString, l: Layout, o: Origin[mut=m], //
](view: TensorView[w, dtype, 2, axes, l, o]) -> type_of(
    TileTensor(ptr=view.data, layout=MixedLayout(Coord(0, 0), Coord(0, 0)))
):
    """Shares a view of rank 2 as a `TileTensor`; nothing is copied.

    Parameters:
        m: Whether the view can be written (inferred).
        w: Whether the kernel writes it (inferred).
        dtype: Element type (inferred).
        axes: Names of the axes (inferred).
        l: Layout of the view (inferred).
        o: Origin of the memory (inferred).

    Args:
        view: Any view whose strides are not negative, as `TileTensor` asks.

    Returns:
        A tile with run-time sizes and strides, tied to the view's origin.
    """
    return TileTensor(
        ptr=view.data,
        layout=MixedLayout(Coord(view.dim(0), view.dim(1)), Coord(view.stride(0), view.stride(1))),
    )


@always_inline
def as_tile[
    m: Bool, w: Bool, dtype: DType, axes: StaticString, l: Layout, o: Origin[mut=m], //
](view: TensorView[w, dtype, 3, axes, l, o]) -> type_of(
    TileTensor(ptr=view.data, layout=MixedLayout(Coord(0, 0, 0), Coord(0, 0, 0)))
):
    """Shares a view of rank 3 as a `TileTensor`; nothing is copied.

    Parameters:
        m: Whether the view can be written (inferred).
        w: Whether the kernel writes it (inferred).
        dtype: Element type (inferred).
        axes: Names of the axes (inferred).
        l: Layout of the view (inferred).
        o: Origin of the memory (inferred).

    Args:
        view: Any view whose strides are not negative, as `TileTensor` asks.

    Returns:
        A tile with run-time sizes and strides, tied to the view's origin.
    """
    return TileTensor(
        ptr=view.data,
        layout=MixedLayout(
            Coord(view.dim(0), view.dim(1), view.dim(2)),
            Coord(view.stride(0), view.stride(1), view.stride(2)),
        ),
    )


@always_inline
def as_tile[
    m: Bool, w: Bool, dtype: DType, axes: StaticString, l: Layout, o: Origin[mut=m], //
](view: TensorView[w, dtype, 4, axes, l, o]) -> type_of(
    TileTensor(ptr=view.data, layout=MixedLayout(Coord(0, 0, 0, 0), Coord(0, 0, 0, 0)))
):
    """Shares a view of rank 4 as a `TileTensor`; nothing is copied.

    Parameters:
        m: Whether the view can be written (inferred).
        w: Whether the kernel writes it (inferred).
        dtype: Element type (inferred).
        axes: Names of the axes (inferred).
        l: Layout of the view (inferred).
        o: Origin of the memory (inferred).

    Args:
        view: Any view whose strides are not negative, as `TileTensor` asks.

    Returns:
        A tile with run-time sizes and strides, tied to the view's origin.
    """
    return TileTensor(
        ptr=view.data,
        layout=MixedLayout(
            Coord(view.dim(0), view.dim(1), view.dim(2), view.dim(3)),
            Coord(view.stride(0), view.stride(1), view.stride(2), view.stride(3)),
        ),
    )


@always_inline
def as_tile[
    m: Bool, w: Bool, dtype: DType, axes: StaticString, l: Layout, o: Origin[mut=m], //
](view: TensorView[w, dtype, 5, axes, l, o]) -> type_of(
    TileTensor(ptr=view.data, layout=MixedLayout(Coord(0, 0, 0, 0, 0), Coord(0, 0, 0, 0, 0)))
):
    """Shares a view of rank 5 as a `TileTensor`; nothing is copied.

    Parameters:
        m: Whether the view can be written (inferred).
        w: Whether the kernel writes it (inferred).
        dtype: Element type (inferred).
        axes: Names of the axes (inferred).
        l: Layout of the view (inferred).
        o: Origin of the memory (inferred).

    Args:
        view: Any view whose strides are not negative, as `TileTensor` asks.

    Returns:
        A tile with run-time sizes and strides, tied to the view's origin.
    """
    return TileTensor(
        ptr=view.data,
        layout=MixedLayout(
            Coord(view.dim(0), view.dim(1), view.dim(2), view.dim(3), view.dim(4)),
            Coord(view.stride(0), view.stride(1), view.stride(2), view.stride(3), view.stride(4)),
        ),
    )
