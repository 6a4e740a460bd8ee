"""Runs a prepared model once and prints the first score: coldstart MODEL INPUT TORCH"""

from std.sys import argv
from std.utils import IndexList

from torchmojo.model import Mapping, Model


def main() raises:
    var words = argv()
    var model = Model(String(words[1]), String(words[3]))
    var image = Mapping(String(words[2]))
    var x = image.view[DType.float32, 4](IndexList[4](1, 3, 224, 224))
    var result = model.run(x)
    print("first", result.tensor[DType.float32, 2](0)[0, 0], flush=True)
