"""Runs a prepared model without Python and writes its outputs: real FOLDER image|voice FILES...

Files of float32: an image [1, 3, h, w] with h and w as words; or sound [1, n] and a state [2, 1, m].
"""

from std.sys import argv
from std.utils import IndexList

from torchmojo.model import Mapping, Model, Outputs

comptime F32 = DType.float32


def write(result: Outputs, path: String) raises:
    """Writes every output's elements, in order of their addresses."""
    with open(path, "w") as file:
        for index in range(len(result)):
            var count = 1
            for axis in range(result.rank(index)):
                count *= result.dim(index, axis)
            var first = result.tensor_data[F32](index)
            file.write_bytes(Span(unsafe_ptr=first.unsafe_bitcast[UInt8](), length=4 * count))


def main() raises:
    var words = argv()
    var model = Model(String(words[1]))
    var first = Mapping(String(words[4]))
    if String(words[2]) == "image":
        var height = Int(String(words[5]))
        var width = Int(String(words[6]))
        var x = first.view[F32, 4](IndexList[4](1, 3, height, width))
        write(model.run(x), String(words[3]))
    else:
        var second = Mapping(String(words[5]))
        var sound = first.view[F32, 2](IndexList[2](1, first.length // 4))
        var state = second.view[F32, 3](IndexList[3](2, 1, second.length // 8))
        write(model.run(sound, state), String(words[3]))
