"""Runs the small model of `conftest.py` without Python: small FOLDER TORCH WHAT N FILES...

Prints `error: TEXT` for a Mojo error, so that tests can tell it from a crash.
"""

from std.memory import Pointer
from std.sys import argv
from std.utils import IndexList

from torchmojo import Layout, MutTensor, OwnedTensor, Tensor, TensorView, parallel_for
from torchmojo.model import Mapping, Model, Outputs

comptime F32 = DType.float32


def fill(mut owner: OwnedTensor[F32, 2], path: String) raises:
    var file = Mapping(path)
    var view = owner.view()
    var numbers = file.view[F32, 2](IndexList[2](view.dim(0), view.dim(1)))
    for i in range(view.dim(0)):
        for j in range(view.dim(1)):
            view[i, j] = numbers[i, j]


def image_of(
    ref owner: OwnedTensor[F32, 2],
) -> TensorView[False, F32, 4, "", Layout.ANY, origin_of(owner)]:
    """Lays a channels-last image over a matrix of [n * h * w, c]."""
    return {
        Pointer[Float32, origin_of(owner)](unsafe_from_address=owner._data),
        IndexList[4](2, 3, 7, 5),
        IndexList[4](105, 1, 15, 3),
        {0},
    }


def row_of(
    ref owner: OwnedTensor[F32, 2],
) -> TensorView[False, F32, 1, "", Layout.ANY, origin_of(owner)]:
    return {
        Pointer[Float32, origin_of(owner)](unsafe_from_address=owner._data),
        IndexList[1](3),
        IndexList[1](1),
        {0},
    }


def show(result: Outputs) raises:
    for index in range(len(result)):
        var tensor = result.tensor[F32, 2](index)
        for i in range(tensor.dim(0)):
            for j in range(tensor.dim(1)):
                print(index, i, j, tensor[i, j])


def refuse(model: Model, mut x: OwnedTensor[F32, 2], y: OwnedTensor[F32, 2]) raises:
    """Prints what is said of calls that do not fit."""
    var image = image_of(y)
    try:
        _ = model.run(x.view())
    except e:
        print("error:", e)
    try:
        _ = model.run(row_of(y), row_of(y), image)
    except e:
        print("error:", e)
    try:
        _ = model.run(x.view().transpose(0, 1).transpose(0, 1), row_of(y), image.transpose(2, 3))
    except e:
        print("error:", e)
    try:
        _ = model.run(x.view(), row_of(y), row_of(y))
    except e:
        print("error:", e)
    var doubles = OwnedTensor[DType.float64, 2](IndexList[2](2, 4))
    try:
        _ = model.run(doubles.view(), row_of(y), image)
    except e:
        print("error:", e)
    doubles^.release()
    var turned = OwnedTensor[F32, 2](IndexList[2](4, 2))
    try:
        _ = model.run(turned.view().transpose(0, 1), row_of(y), image)
    except e:
        print("error:", e)
    turned^.release()
    var result = model.run(x.view(), row_of(y), image)
    try:
        _ = result.tensor[DType.int64, 2](0)
    except e:
        print("error:", e)
    try:
        _ = result.tensor[F32, 3](1)
    except e:
        print("error:", e)
    try:
        _ = result.tensor[F32, 2](3)
    except e:
        print("error:", e)
    print(result.rank(1), result.dim(1, 1))


def threads(model: Model, mut x: OwnedTensor[F32, 2], y: OwnedTensor[F32, 2]) raises:
    """Calls from torch's threads at the same time, and compares with a first call."""
    var image = image_of(y)
    var row = row_of(y)
    var view = x.view()
    var first = model.run(view, row, image)
    var wanted = first.tensor[F32, 2](0)[0, 0]
    var right = List[Int](length=64, fill=0)
    var counts = right.unsafe_ptr()
    var shared = Pointer(to=model)

    def body(
        start: Int, end: Int
    ) {var shared, var view, var row, var image, var wanted, var counts}:
        for i in range(start, end):
            try:
                for _ in range(20):
                    var result = shared[].run(view, row, image)
                    if result.tensor[F32, 2](0)[0, 0] == wanted:
                        counts[unsafe_offset=i] += 1
            except:
                pass

    parallel_for(body, 64, 1)
    var total = 0
    for i in range(64):
        total += right[i]
    print("right:", total)


def use(model: Model, mut x: OwnedTensor[F32, 2], y: OwnedTensor[F32, 2], what: String) raises:
    if what == "show":
        show(model.run(x.view(), row_of(y), image_of(y)))
    elif what == "refuse":
        refuse(model, x, y)
    elif what == "threads":
        threads(model, x, y)
    elif what == "soak":
        for _ in range(5000):
            _ = model.run(x.view(), row_of(y), image_of(y))
        print("soaked")
    elif what == "python":
        with open("/proc/self/maps", "r") as file:
            var maps = file.read()
            print(
                maps.find("libtorch_cpu") >= 0, maps.find("libtorch_python"), maps.find("libpython")
            )


def work(
    folder: String, torch: String, what: String, n: Int, x_file: String, y_file: String
) raises:
    var model = Model(folder, torch)
    var x = OwnedTensor[F32, 2](IndexList[2](n, 4))
    try:
        # y is the first row of the image's memory.
        var y = OwnedTensor[F32, 2](IndexList[2](70, 3))
        try:
            fill(x, x_file)
            fill(y, y_file)
            use(model, x, y, what)
        finally:
            y^.release()
    finally:
        x^.release()


def main():
    var words = argv()
    try:
        work(
            String(words[1]),
            String(words[2]),
            String(words[3]),
            Int(String(words[4])),
            String(words[5]),
            String(words[6]),
        )
    except e:
        print("error:", e)
