"""A prepared model in a program without Python."""

from std.memory import Pointer
from std.os import getenv
from std.utils import IndexList

from torchmojo.layout import Layout
from torchmojo.model.index import Index, InputSpec, OutputSpec, VARIES
from torchmojo.model.outputs import Outputs
from torchmojo.model.runtime import Container, Torch, open_torch
from torchmojo.model.system import Mapping, cpu_flags, open_library
from torchmojo.owned import _torch_dtype
from torchmojo.view import TensorView


@fieldwise_init
struct _Given(Copyable):
    """An input as it was given, without its type."""

    var data: Int
    var dtype: Int
    var sizes: List[Int]
    var strides: List[Int]


struct _Tensors(Movable):
    """Handles over memory of others, each deleted once."""

    var torch: Torch
    var handles: List[Int]

    def __init__(out self, torch: Torch):
        self.torch = torch.copy()
        self.handles = List[Int]()

    def __init__(out self, *, deinit move: Self):
        self.torch = move.torch.copy()
        self.handles = move.handles^

    def __deinit__(deinit self):
        for handle in self.handles:
            self.torch.drop(handle)

    def give(mut self) -> List[Int]:
        """Hands the handles over to who deletes them."""
        var handles = self.handles.copy()
        self.handles.clear()
        return handles^


struct Model(Movable):
    """A folder that `torchmojo.prepare` wrote: its library loaded, its weights mapped and bound.

    Calls may come from several threads. Loops run on torch's threads; there is no second pool.
    The weights stay in the file's pages: nothing is copied, and a program that edits the file while
    it is mapped changes them. The digests of the files are not computed here, only their lengths are
    compared; `torchmojo.Model` in Python, or `sha256sum`, computes them.
    """

    var inputs: List[InputSpec]
    """What it takes, in order."""
    var outputs: List[OutputSpec]
    """What it gives, in order."""
    var _torch: Torch
    var _container: Container
    var _weights: _Tensors
    var _mapping: Mapping

    def __init__(out self, folder: String, torch: String = "", instances: Int = 1) raises:
        """Opens a prepared model and runs its code.

        Args:
            folder: The model.
            torch: Path of `libtorch_cpu.so`; by default that of the environment variable
                `TORCHMOJO_TORCH_LIB`, and without it the one that the model was prepared with. A
                process that has libtorch keeps it.
            instances: Calls that can run at the same time; others wait their turn.

        Raises:
            Error: A file is missing, cut off, or made for another CPU, or a library does not load.
        """
        if instances < 1:
            raise Error(t"Model: instances: wanted 1 or more, given {instances}")
        var index = Index(folder)
        _check_cpu(folder, index)
        if index.calls.byte_length() > 0:
            raise Error(
                t"Model: {folder}: wanted a model that needs nothing of Python, given one that calls"
                t" {index.calls} by name; run it with torchmojo.Model"
            )
        var mapping = Mapping(folder + "/weights.safetensors")
        _check_length(folder, index, "weights.safetensors", mapping.length)
        _check_length(folder, index, "model.so", Mapping(folder + "/model.so").length)
        var path = torch if torch.byte_length() > 0 else getenv("TORCHMOJO_TORCH_LIB")
        var functions = Torch.of(open_torch(path, index))
        var library = open_library(folder + "/model.so", False)
        var container = Container(library, instances)
        container.check_counts(library, len(index.inputs), len(index.outputs))
        var weights = _Tensors(functions)
        var names = List[String]()
        for i in range(len(index.constants)):
            ref entry = index.constants[i]
            _check_inside(folder, entry.name, entry.offset, entry.nbytes, mapping.length)
            _check_reach(folder, entry.name, entry.dtype, entry.nbytes, entry.sizes, entry.strides)
            weights.handles.append(
                functions.tensor_over(
                    mapping.address + entry.offset, entry.dtype, entry.sizes, entry.strides
                )
            )
            names.append(entry.name + "\0")
        var pairs = List[Int]()
        for i in range(len(names)):
            pairs.append(Int(names[i].unsafe_ptr()))
            pairs.append(weights.handles[i])
        container.bind(pairs)
        _ = names^
        self.inputs = index.inputs.copy()
        self.outputs = index.outputs.copy()
        self._torch = functions^
        self._container = container^
        self._weights = weights^
        self._mapping = mapping^

    def __init__(out self, *, deinit move: Self):
        """Takes over from another owner.

        Args:
            move: The former owner, which is gone.
        """
        self.inputs = move.inputs^
        self.outputs = move.outputs^
        self._torch = move._torch.copy()
        self._container = move._container^
        self._weights = move._weights^
        self._mapping = move._mapping^

    def run[
        m: Bool, w: Bool, d: DType, r: Int, a: StaticString, l: Layout, o: Origin[mut=m], //
    ](self, x: TensorView[w, d, r, a, l, o]) raises -> Outputs:
        """Runs a model of one input.

        Parameters:
            m: Whether the memory can be written (inferred).
            w: Whether the view writes (inferred).
            d: Element type (inferred).
            r: Number of axes (inferred).
            a: Names of the axes (inferred).
            l: Layout of the view (inferred).
            o: Origin of the memory (inferred).

        Args:
            x: The input; it is read as it lies, and its strides must be those of the example that
                the model was prepared with.

        Returns:
            The outputs.

        Raises:
            Error: The input does not fit, or torch raises.
        """
        var given = List[_Given]()
        given.append(_given(x))
        return self._call(given)

    def run[
        m1: Bool,
        w1: Bool,
        d1: DType,
        r1: Int,
        a1: StaticString,
        l1: Layout,
        o1: Origin[mut=m1],
        m2: Bool,
        w2: Bool,
        d2: DType,
        r2: Int,
        a2: StaticString,
        l2: Layout,
        o2: Origin[mut=m2],
        //,
    ](
        self, x: TensorView[w1, d1, r1, a1, l1, o1], y: TensorView[w2, d2, r2, a2, l2, o2]
    ) raises -> Outputs:
        """Runs a model of two inputs; see above.

        Args:
            x: The first input.
            y: The second.

        Returns:
            The outputs.

        Raises:
            Error: An input does not fit, or torch raises.
        """
        var given = List[_Given]()
        given.append(_given(x))
        given.append(_given(y))
        return self._call(given)

    def run[
        m1: Bool,
        w1: Bool,
        d1: DType,
        r1: Int,
        a1: StaticString,
        l1: Layout,
        o1: Origin[mut=m1],
        m2: Bool,
        w2: Bool,
        d2: DType,
        r2: Int,
        a2: StaticString,
        l2: Layout,
        o2: Origin[mut=m2],
        m3: Bool,
        w3: Bool,
        d3: DType,
        r3: Int,
        a3: StaticString,
        l3: Layout,
        o3: Origin[mut=m3],
        //,
    ](
        self,
        x: TensorView[w1, d1, r1, a1, l1, o1],
        y: TensorView[w2, d2, r2, a2, l2, o2],
        z: TensorView[w3, d3, r3, a3, l3, o3],
    ) raises -> Outputs:
        """Runs a model of three inputs; see above.

        Args:
            x: The first input.
            y: The second.
            z: The third.

        Returns:
            The outputs.

        Raises:
            Error: An input does not fit, or torch raises.
        """
        var given = List[_Given]()
        given.append(_given(x))
        given.append(_given(y))
        given.append(_given(z))
        return self._call(given)

    def _call(self, given: List[_Given]) raises -> Outputs:
        if len(given) != len(self.inputs):
            raise Error(t"Model: wanted {len(self.inputs)} inputs, given {len(given)}")
        var names = List[String]()
        var sizes = List[Int]()
        for i in range(len(given)):
            _check_input(self.inputs[i], given[i], names, sizes)
        var tensors = _Tensors(self._torch)
        for i in range(len(given)):
            tensors.handles.append(
                self._torch.tensor_over(
                    given[i].data, given[i].dtype, given[i].sizes, given[i].strides
                )
            )
        var handles = List[Int](length=len(self.outputs), fill=0)
        var inputs = tensors.give()  # the container deletes them, also where it raises
        self._container.run(inputs, handles)
        return Outputs(self._torch, handles^)


def _given[
    m: Bool, w: Bool, d: DType, r: Int, a: StaticString, l: Layout, o: Origin[mut=m], //
](x: TensorView[w, d, r, a, l, o]) -> _Given:
    var sizes = List[Int]()
    var strides = List[Int]()
    comptime for axis in range(r):
        sizes.append(x.shape[axis])
        strides.append(x.strides[axis])
    return _Given(Int(x.data), _torch_dtype(d), sizes^, strides^)


def _check_input(
    spec: InputSpec, given: _Given, mut names: List[String], mut sizes: List[Int]
) raises:
    """Refuses an input that the library would read wrongly: it never looks at strides."""
    if given.dtype != spec.dtype:
        raise Error(
            t"Model: {spec.name}: wanted torch's dtype {spec.dtype}, given dtype {given.dtype}"
        )
    if len(given.sizes) != len(spec.sizes):
        raise Error(t"Model: {spec.name}: wanted {len(spec.sizes)} axes, given {len(given.sizes)}")
    for axis in range(len(spec.sizes)):
        var size = given.sizes[axis]
        if size < spec.least[axis] or size > spec.most[axis]:
            raise Error(
                t"Model: {spec.name}: axis {axis}: wanted {spec.least[axis]} to {spec.most[axis]},"
                t" given {size}"
            )
        if spec.sizes[axis] == VARIES:
            for i in range(len(names)):
                if names[i] == spec.names[axis] and sizes[i] != size:
                    raise Error(
                        t"Model: {spec.name}: axis {axis}: wanted {sizes[i]}, as of another input,"
                        t" given {size}"
                    )
            names.append(spec.names[axis])
            sizes.append(size)
    var step = 1
    for k in range(len(spec.order)):
        var axis = spec.order[len(spec.order) - 1 - k]
        var size = given.sizes[axis]
        if size == 0:
            return
        if size != 1 and given.strides[axis] != step:
            raise Error(
                t"Model: {spec.name}: axis {axis}: wanted the stride {step}, given"
                t" {given.strides[axis]}; copy the input first"
            )
        step *= size


def _check_cpu(folder: String, index: Index) raises:
    var flags = cpu_flags()
    if flags.byte_length() == 0:
        return
    for i in range(len(index.features)):
        if flags.find(String(t" {index.features[i]} ")) < 0:
            raise Error(
                t"Model: {folder}: wanted a model for this CPU, given one that needs"
                t" {index.features[i]}; prepare it on this machine"
            )


def _check_length(folder: String, index: Index, name: String, length: Int) raises:
    var wanted = index.length(name)
    if length != wanted:
        raise Error(
            t"Model: {folder}: wanted {name} of {wanted} bytes, given {length}; it was changed or"
            t" cut off: copy the folder again"
        )


def _check_inside(folder: String, name: String, offset: Int, nbytes: Int, length: Int) raises:
    if offset > length or nbytes > length - offset:
        raise Error(
            t"Model: {folder}: weight {name}: wanted one inside a file of {length} bytes, given"
            t" {nbytes} at {offset}"
        )


def _check_reach(
    folder: String, name: String, dtype: Int, nbytes: Int, sizes: List[Int], strides: List[Int]
) raises:
    """Refuses sizes and strides that reach out of a weight's bytes."""
    var reach = Int128(_width(dtype))
    for axis in range(len(sizes)):
        if sizes[axis] == 0:
            return
        reach += Int128(sizes[axis] - 1) * Int128(strides[axis]) * Int128(_width(dtype))
        if reach > Int128(nbytes):
            raise Error(
                t"Model: {folder}: weight {name}: wanted sizes within {nbytes} bytes, given larger"
            )


def _width(dtype: Int) -> Int:
    """Returns the bytes of an element, by torch's number (c10/core/ScalarType.h)."""
    if dtype == 4 or dtype == 7 or dtype == 9 or dtype == 29:
        return 8
    if dtype == 3 or dtype == 6 or dtype == 28:
        return 4
    if dtype == 2 or dtype == 5 or dtype == 15 or dtype == 27:
        return 2
    return 16 if dtype == 10 else 1
