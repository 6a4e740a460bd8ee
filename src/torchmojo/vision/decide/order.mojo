"""The order of candidates: stable radix sorts, by score and by group."""

from std.memory import Pointer, bitcast

comptime Buffer[dtype: DType] = Pointer[Scalar[dtype], MutUntrackedOrigin]
"""A part of a list that the caller keeps alive."""

comptime DIGIT = 11
"""Bits of a radix sort's digit: 2048 counters stay in the first cache."""

comptime BUCKETS = 1 << DIGIT


def address_of[dtype: DType](mut list: List[Scalar[dtype]]) -> Buffer[dtype]:
    """Returns where a list's elements are; the caller keeps the list, and does not let it grow.

    Args:
        list: Any list.

    Returns:
        The address of its first element.
    """
    return Buffer[dtype](unsafe_from_address=Int(list.unsafe_ptr()))


def key_type[wide: DType]() -> DType:
    """Returns the integer type that holds the bits of a float type."""
    return DType.uint64 if wide == DType.float64 else DType.uint32


def descending_key[wide: DType](score: Scalar[wide]) -> Scalar[key_type[wide]()]:
    """Returns an integer that is less the greater the score is; both zeros are one.

    Parameters:
        wide: float32 or float64.

    Args:
        score: Any number but NaN.

    Returns:
        The key to sort by.
    """
    comptime key = key_type[wide]()
    comptime top = Scalar[key](1) << Scalar[key](63 if wide == DType.float64 else 31)
    var bits = bitcast[key](score)
    if bits & ~top == 0:
        bits = 0
    # Positive numbers rise with their bits, negative ones fall: then all is turned round.
    return bits if bits & top != 0 else ~bits ^ top


def sort_stably[key: DType](mut keys: List[Scalar[key]], mut payload: List[Int32]):
    """Sorts by keys, least first; equal keys stay in the order in which they are.

    Digits that are alike in all keys, as the upper ones of class numbers, cost no pass.

    Parameters:
        key: uint32 or uint64.

    Args:
        keys: What to sort by.
        payload: What moves along with them, as many.
    """
    comptime passes = (64 if key == DType.uint64 else 32) // DIGIT + 1
    var n = len(keys)
    var other_keys = List[Scalar[key]](length=n, fill=0)
    var other_payload = List[Int32](length=n, fill=0)
    var counts = List[Int32](length=passes * BUCKETS, fill=0)
    var k = address_of(keys)
    var p = address_of(payload)
    var k2 = address_of(other_keys)
    var p2 = address_of(other_payload)
    var c = address_of(counts)
    for i in range(n):
        var value = k[unsafe_offset=i]
        comptime for d in range(passes):
            comptime shift = Scalar[key](d * DIGIT)
            c[unsafe_offset=d * BUCKETS + Int((value >> shift) & (BUCKETS - 1))] += 1
    var swapped = False
    for d in range(passes if n > 1 else 0):
        var shift = Scalar[key](d * DIGIT)
        var places = c.unsafe_offset(d * BUCKETS)
        if Int(places[unsafe_offset=Int((k[] >> shift) & (BUCKETS - 1))]) == n:
            continue
        var sum = Int32(0)
        for b in range(BUCKETS):
            var count = places[unsafe_offset=b]
            places[unsafe_offset=b] = sum
            sum += count
        for i in range(n):
            var value = k[unsafe_offset=i]
            var bucket = Int((value >> shift) & (BUCKETS - 1))
            var to = Int(places[unsafe_offset=bucket])
            places[unsafe_offset=bucket] = Int32(to + 1)
            k2[unsafe_offset=to] = value
            p2[unsafe_offset=to] = p[unsafe_offset=i]
        swap(k, k2)
        swap(p, p2)
        swapped = not swapped
    if swapped:
        swap(keys, other_keys)
        swap(payload, other_payload)
    # The addresses above are of these.
    _ = other_keys^
    _ = other_payload^
    _ = counts^
