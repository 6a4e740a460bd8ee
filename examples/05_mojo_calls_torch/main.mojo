"""Classifies a photograph with a PyTorch model, without Python.

Run it: classify MODEL PIXELS. MODEL is a folder that `torchmojo.prepare` wrote; PIXELS is a file of 224 x 224 x 3 bytes.
"""

from std.math import exp
from std.sys import argv
from std.utils import IndexList

from torchmojo import MutTensor, OwnedTensor, Tensor
from torchmojo.model import Mapping, Model

comptime SIZE = 224
comptime TOP = 5


def normalise(x: MutTensor[DType.float32, 4], pixels: Tensor[DType.uint8, 3]):
    """Spreads pixels over planes, with ImageNet's mean 0 and deviation 1."""
    var mean: List[Float32] = [0.485, 0.456, 0.406]
    var deviation: List[Float32] = [0.229, 0.224, 0.225]
    for c in range(3):
        for i in range(pixels.dim(0)):
            for j in range(pixels.dim(1)):
                x[0, c, i, j] = (Float32(pixels[i, j, c]) / 255 - mean[c]) / deviation[c]


def print_top(scores: Tensor[DType.float32, 2]):
    """Prints the best classes with their share of the softmax."""
    var greatest = scores[0, 0]
    for i in range(scores.dim(1)):
        greatest = max(greatest, scores[0, i])
    var shares = List[Float32]()
    var sum = Float32(0)
    for i in range(scores.dim(1)):
        shares.append(exp(scores[0, i] - greatest))
        sum += shares[i]
    for _ in range(TOP):
        var best = 0
        for i in range(len(shares)):
            if shares[i] > shares[best]:
                best = i
        print(best, shares[best] / sum)
        shares[best] = -1


def count_python() raises -> Int:
    """Counts what is mapped of libpython and of torch's Python part."""
    var count = 0
    with open("/proc/self/maps", "r") as file:
        for line in file.read().split("\n"):
            if line.find("libpython") >= 0 or line.find("libtorch_python") >= 0:
                count += 1
    return count


def classify(model: Model, photo: Mapping, mut x: OwnedTensor[DType.float32, 4]) raises:
    normalise(x.view(), photo.view[DType.uint8, 3](IndexList[3](SIZE, SIZE, 3)))
    var result = model.run(x.view())
    print_top(result.tensor[DType.float32, 2](0))


def main() raises:
    var words = argv()
    if len(words) != 3:
        raise Error("classify: wanted a model and a file of pixels")
    var model = Model(String(words[1]))
    var photo = Mapping(String(words[2]))
    var x = OwnedTensor[DType.float32, 4](IndexList[4](1, 3, SIZE, SIZE))
    try:
        classify(model, photo, x)
    finally:
        x^.release()
    print("libraries of Python in this process:", count_python())
