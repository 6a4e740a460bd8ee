"""Reads `model.flat`: one fact a line, words with one space between them."""

from torchmojo.model.system import Mapping

comptime FORMAT = "1"
"""The version of the index that is read."""
comptime VARIES = -1
"""Stands for a size that varies."""


@fieldwise_init
struct InputSpec(Copyable):
    """What a model asks of an input."""

    var name: String
    """Name of the argument of the module's `forward`."""
    var dtype: Int
    """Torch's number of its dtype."""
    var sizes: List[Int]
    """Size of each axis, or `VARIES`."""
    var names: List[String]
    """For an axis that varies, its name: equal names are equal sizes."""
    var least: List[Int]
    """Least size of each axis."""
    var most: List[Int]
    """Greatest size of each axis."""
    var order: List[Int]
    """Axes from the widest stride to the narrowest; memory has no gaps."""


@fieldwise_init
struct OutputSpec(Copyable):
    """What a model gives."""

    var name: String
    """Name in the exported graph."""
    var dtype: Int
    """Torch's number of its dtype."""
    var rank: Int
    """Number of axes."""


@fieldwise_init
struct ConstantSpec(Copyable):
    """Where a weight lies."""

    var name: String
    """The library's name for it."""
    var dtype: Int
    """Torch's number of its dtype."""
    var offset: Int
    """First byte in the file of weights."""
    var nbytes: Int
    """Its bytes."""
    var sizes: List[Int]
    """Size of each axis."""
    var strides: List[Int]
    """Stride of each axis, in elements."""


struct Index(Movable):
    """All that `model.flat` says."""

    var torch: String
    """Version that compiled the library."""
    var hint: String
    """Where libtorch was when the model was prepared."""
    var threads: String
    """Threads that loops were split for."""
    var features: List[String]
    """What the code asks of the CPU."""
    var calls: String
    """Operators that the library calls by name."""
    var files: List[String]
    """Names of files."""
    var lengths: List[Int]
    """Bytes of each of the files."""
    var constants: List[ConstantSpec]
    """The weights."""
    var inputs: List[InputSpec]
    """The inputs in order."""
    var outputs: List[OutputSpec]
    """The outputs in order."""

    def __init__(out self, folder: String) raises:
        """Reads the index of a folder.

        Args:
            folder: A prepared model.

        Raises:
            Error: It is missing, cut off, or of another version.
        """
        self.torch = String("")
        self.hint = String("")
        self.threads = String("1")
        self.features = List[String]()
        self.calls = String("")
        self.files = List[String]()
        self.lengths = List[Int]()
        self.constants = List[ConstantSpec]()
        self.inputs = List[InputSpec]()
        self.outputs = List[OutputSpec]()
        var text = Mapping(folder + "/model.flat").text()
        var count = 0
        var whole = False
        for line in text.split("\n"):
            var words = List[String]()
            for word in line.split(" "):
                words.append(String(word))
            if count == 0 and (len(words) != 2 or words[0] != "torchmojo-model"):
                raise Error(t"Model: {folder}: wanted a folder that torchmojo.prepare wrote")
            if count == 0 and words[1] != FORMAT:
                raise Error(
                    t"Model: {folder}: wanted a model of format {FORMAT}, given {words[1]}; prepare"
                    t" it again"
                )
            if words[0] == "end":
                whole = len(words) == 2 and words[1] == String(count)
                break
            try:
                self._take(words, String(line))
            except error:
                raise Error(
                    t"Model: {folder}: wanted a whole model.flat, given the line '{line}'; prepare"
                    t" the model again"
                )
            count += 1
        if not whole:
            raise Error(
                t"Model: {folder}: wanted a whole model.flat, given one that was cut off; copy the"
                t" folder again"
            )

    def __init__(out self, *, deinit move: Self):
        """Takes over from another owner.

        Args:
            move: The former owner, which is gone.
        """
        self.torch = move.torch^
        self.hint = move.hint^
        self.threads = move.threads^
        self.features = move.features^
        self.calls = move.calls^
        self.files = move.files^
        self.lengths = move.lengths^
        self.constants = move.constants^
        self.inputs = move.inputs^
        self.outputs = move.outputs^

    def length(self, name: StringSlice) raises -> Int:
        """Tells how many bytes a file must have.

        Args:
            name: The file.

        Returns:
            Its bytes.

        Raises:
            Error: The index does not name it.
        """
        for i in range(len(self.files)):
            if self.files[i] == name:
                return self.lengths[i]
        raise Error(t"Model: wanted an index that names {name}")

    def _take(mut self, words: List[String], line: String) raises:
        ref kind = words[0]
        if kind == "torch":
            self.torch = words[1]
        elif kind == "libtorch":
            self.hint = String(line[byte = line.find(" ") + 1 :])
        elif kind == "threads":
            self.threads = words[1]
        elif kind == "cpu":
            self.features.append(words[1])
        elif kind == "calls":
            self.calls = String(line[byte = line.find(" ") + 1 :])
        elif kind == "file":
            self.files.append(words[1])
            self.lengths.append(_number(words, 2))
        elif kind == "constant":
            self.constants.append(_constant(words))
        elif kind == "input":
            self.inputs.append(_input(words))
        elif kind == "output":
            self.outputs.append(OutputSpec(words[1], _number(words, 2), _number(words, 3)))


def _number(words: List[String], place: Int) raises -> Int:
    if place >= len(words):
        raise Error("too few words")
    var number = Int(words[place])
    if number < 0:
        raise Error("negative")
    return number


def _rank(words: List[String], place: Int, each: Int) raises -> Int:
    """Reads a rank, and checks that as many words follow."""
    var rank = _number(words, place)
    if rank > 64 or len(words) != place + 1 + each * rank:
        raise Error("wrong number of words")
    return rank


def _constant(words: List[String]) raises -> ConstantSpec:
    var rank = _rank(words, 5, 2)
    var sizes = List[Int]()
    var strides = List[Int]()
    for i in range(rank):
        sizes.append(_number(words, 6 + i))
        strides.append(_number(words, 6 + rank + i))
    return ConstantSpec(
        words[1], _number(words, 2), _number(words, 3), _number(words, 4), sizes^, strides^
    )


def _input(words: List[String]) raises -> InputSpec:
    var rank = _rank(words, 3, 2)
    var sizes = List[Int]()
    var names = List[String]()
    var least = List[Int]()
    var most = List[Int]()
    var order = List[Int]()
    for i in range(rank):
        ref word = words[4 + i]
        order.append(_number(words, 4 + rank + i))
        if order[i] >= rank:
            raise Error("no such axis")
        var parts = List[String]()
        for part in word.split(":"):
            parts.append(String(part))
        if len(parts) == 3:
            sizes.append(VARIES)
            names.append(parts[0])
            least.append(_number(parts, 1))
            most.append(_number(parts, 2))
        else:
            sizes.append(_number(words, 4 + i))
            names.append(String(""))
            least.append(sizes[i])
            most.append(sizes[i])
    return InputSpec(words[1], _number(words, 2), sizes^, names^, least^, most^, order^)
