"""Which index pairs meet in memory: for outputs that overlap themselves or other arguments."""


from torchmojo._glue.numbers import Numbers
from torchmojo._glue.record import Record
from torchmojo._glue.records import Records

# Steps of the search before it gives up and says "may overlap". Ordinary slices need a handful.
# `torchmojo/bridge/refuse/overlap.py` tells the same search slowly, with the same budget.
comptime _BUDGET = 20_000
comptime _MAX_TERMS = 128


@always_inline
def overlaps_itself(record: Record) -> Bool:
    """Returns whether two indices of a tensor may be the same element.

    Args:
        record: A tensor that a kernel writes.
    """
    # Dense row-major, by far the most frequent case, is decided without a call.
    var expected = 1
    for i in range(record.ndim):
        var axis = record.ndim - 1 - i
        var size = record.size(axis)
        if size != 1:
            if record.stride(axis) != expected:
                return _search_itself(record)
            expected *= size
    return False


@always_inline
def overlaps_in_part(output: Record, other: Record) -> Bool:
    """Returns whether an output may share memory with another argument without being the same view.

    The same address, shape and strides are allowed: elementwise kernels run in place.

    Args:
        output: A tensor that a kernel writes.
        other: Any other tensor argument of the call.
    """
    if output.high <= other.low or other.high <= output.low:
        return False
    if output.low == output.high or other.low == other.high:  # one without elements
        return False
    return _meets(output, other)


def overlaps_in_part(output: Records, other: Record) -> Bool:
    """Returns whether any output of a list shares memory in part with another argument.

    Args:
        output: Tensors that a kernel writes.
        other: Another tensor argument of the call.

    Returns:
        True also where the search gave up.
    """
    for k in range(output.count()):
        if overlaps_in_part(output.at(k), other):
            return True
    return False


def overlaps_in_part(output: Record, other: Records) -> Bool:
    """Returns whether an output shares memory in part with any tensor of a list.

    Args:
        output: A tensor that a kernel writes.
        other: A list argument of the call.

    Returns:
        True also where the search gave up.
    """
    return overlaps_in_part(other, output)


def overlaps_in_part(output: Records, other: Records) -> Bool:
    """Returns whether any tensors of two lists share memory in part.

    Args:
        output: Tensors that a kernel writes.
        other: Another list argument of the call.

    Returns:
        True also where the search gave up.
    """
    for k in range(other.count()):
        if overlaps_in_part(output, other.at(k)):
            return True
    return False


@no_inline
def _search_itself(record: Record) -> Bool:
    if record.low == record.high:
        return False
    # Sorted by stride, each axis must step over all that lies within the smaller ones.
    var terms = _Terms()
    for i in range(record.ndim):
        if record.size(i) > 1:
            if record.stride(i) == 0 or terms.count == _MAX_TERMS:
                return True
            terms.add(record.stride(i), record.size(i) - 1)
    terms.sort()
    var reach = 0
    for i in range(terms.count):
        var k = terms.count - 1 - i
        if terms.step(k) <= reach:
            return _has_collision(terms)
        reach += terms.step(k) * terms.most(k)
    return False


def _has_collision(terms: _Terms) -> Bool:
    """Returns whether some non-zero difference of indices gives offset 0."""
    # A difference runs over -most ..= most; shifted by most it is a term of range 0 ..= 2 * most.
    for lead in range(terms.count):
        # The first non-zero difference is at `lead`, and positive: 1 ..= most.
        var rest = _Terms()
        var target = -terms.step(lead)
        rest.add(terms.step(lead), terms.most(lead) - 1)
        for k in range(lead + 1, terms.count):
            rest.add(terms.step(k), 2 * terms.most(k))
            target += terms.step(k) * terms.most(k)
        rest.prepare()
        var budget = _BUDGET
        if _reaches(rest, 0, target, target, budget):
            return True
    return False


@no_inline
def _meets(a: Record, b: Record) -> Bool:
    var width_a = _width(a)
    var width_b = _width(b)
    if a.data == b.data and a.ndim == b.ndim and width_a == width_b:
        var same = True
        for i in range(a.ndim):
            if a.size(i) != b.size(i) or (a.size(i) > 1 and a.stride(i) != b.stride(i)):
                same = False
        if same:
            return False
    if a.ndim + b.ndim > _MAX_TERMS:
        return True
    # Is there an index i of a and j of b whose bytes meet? Both are sums of step * count from the
    # lowest byte; b's terms are mirrored so that everything adds up to one window.
    var terms = _Terms()
    var span_b = 0
    for i in range(a.ndim):
        terms.add(a.stride(i) * width_a, a.size(i) - 1)
    for i in range(b.ndim):
        terms.add(b.stride(i) * width_b, b.size(i) - 1)
        span_b += abs(b.stride(i) * width_b) * (b.size(i) - 1)
    terms.prepare()
    # low_a + x and low_b + y meet iff -width_a < low_a + x - low_b - y < width_b, with
    # y = span_b - y', so that x + y' lies in a window around low_b - low_a + span_b.
    var middle = b.low - a.low + span_b
    var budget = _BUDGET
    return _reaches(terms, 0, middle - width_a + 1, middle + width_b - 1, budget)


def _width(record: Record) -> Int:
    """Returns the bytes of an element from the record's own bounds."""
    var reach = 0
    for i in range(record.ndim):
        reach += abs(record.stride(i)) * (record.size(i) - 1)
    return (record.high - record.low) // (reach + 1)


struct _Terms(Copyable):
    """A sum of `step * k` with `0 <= k <= most`, steps positive, largest first once sorted."""

    var steps: Numbers[_MAX_TERMS]
    var mosts: Numbers[_MAX_TERMS]
    # Of the terms from here on: the greatest sum, the greatest divisor of all steps, and whether
    # every multiple of it up to the greatest sum is reached.
    var reaches: Numbers[_MAX_TERMS + 1]
    var divisors: Numbers[_MAX_TERMS + 1]
    var full: Numbers[_MAX_TERMS + 1]
    var count: Int

    def __init__(out self):
        self.steps = Numbers[_MAX_TERMS](fill=0)
        self.mosts = Numbers[_MAX_TERMS](fill=0)
        self.reaches = Numbers[_MAX_TERMS + 1](fill=0)
        self.divisors = Numbers[_MAX_TERMS + 1](fill=0)
        self.full = Numbers[_MAX_TERMS + 1](fill=1)
        self.count = 0

    def add(mut self, step: Int, most: Int):
        """Adds a term; terms that never move are left out."""
        if most > 0 and step != 0:
            self.steps[self.count] = abs(step)
            self.mosts[self.count] = most
            self.count += 1

    def step(self, k: Int) -> Int:
        return self.steps[k]

    def most(self, k: Int) -> Int:
        return self.mosts[k]

    def sort(mut self):
        """Sorts by falling step; a few terms, so by insertion."""
        for i in range(1, self.count):
            var k = i
            while k > 0 and self.steps[k - 1] < self.steps[k]:
                var step = self.steps[k]
                var most = self.mosts[k]
                self.steps[k] = self.steps[k - 1]
                self.mosts[k] = self.mosts[k - 1]
                self.steps[k - 1] = step
                self.mosts[k - 1] = most
                k -= 1

    def prepare(mut self):
        """Makes the terms ready for a search: sorts, joins equal steps, sums up from the end."""
        self.sort()
        var last = 0
        for i in range(1, self.count):
            if self.steps[i] == self.steps[last]:
                self.mosts[last] += self.mosts[i]
            else:
                last += 1
                self.steps[last] = self.steps[i]
                self.mosts[last] = self.mosts[i]
        self.count = min(self.count, last + 1)
        for i in range(self.count):
            var k = self.count - 1 - i
            var divisor = _common_divisor(self.steps[k], self.divisors[k + 1])
            # Without a gap: all smaller ones together reach up to the next step. They do so in
            # multiples of their own divisor, which must divide this step.
            var full = (
                self.full[k + 1] != 0
                and (i == 0 or divisor == self.divisors[k + 1])
                and (i == 0 or self.steps[k] <= self.reaches[k + 1] + divisor)
            )
            self.full[k] = 1 if full else 0
            self.divisors[k] = divisor
            self.reaches[k] = self.reaches[k + 1] + self.steps[k] * self.mosts[k]


def _common_divisor(a: Int, b: Int) -> Int:
    var x = a
    var y = b
    while y != 0:
        var rest = x % y
        x = y
        y = rest
    return x


def _reaches(terms: _Terms, first: Int, low: Int, high: Int, mut budget: Int) -> Bool:
    """Returns whether terms `first...` can sum to a value in `low ..= high`.

    Depth-first with bounds; True once the budget is spent, so that doubt counts as overlap.
    """
    budget -= 1
    if budget < 0:
        return True
    var start = max(low, 0)
    var end = min(high, terms.reaches[first])
    if start > end:
        return False
    if first == terms.count:
        return True
    # The larger steps make multiples of their common divisor, to which the smaller ones add little.
    var divisor = 0
    for i in range(first, terms.count):
        divisor = _common_divisor(terms.steps[i], divisor)
        if high // divisor * divisor < low - terms.reaches[i + 1]:
            return False
    if terms.full[first] != 0 and (start + divisor - 1) // divisor * divisor <= end:
        return True
    var step = terms.steps[first]
    # Only multiples k with low - rest <= step * k <= high can be completed by the rest.
    var least = max(0, (low - terms.reaches[first + 1] + step - 1) // step)
    for k in range(least, min(terms.mosts[first], high // step) + 1):
        if _reaches(terms, first + 1, low - step * k, high - step * k, budget):
            return True
    return False
