"""`reload()`, `watch=True` and pickling: the source changes, kernels in use do not."""

import copy
import gc
import multiprocessing
import os
import pickle
import weakref

import numpy as np
import pytest
import torch

import torchmojo
from torchmojo import CompileError, CompilerNotFoundError
from torchmojo.toolchain import library as toolchain

HEAD = "from torchmojo import MutTensor, Tensor\n\n"
ADD = (
    HEAD
    + '''
def shift(dst: MutTensor[DType.float32, 1]):
    """Adds one."""
    for i in range(dst.dim(0)):
        dst[i] += {}
'''
)
TWO = (
    ADD.format(1)
    + """
def other(dst: MutTensor[DType.float32, 1]) raises:
    raise Error("other")
"""
)
BROKEN = ADD.format("missing")


class Source:
    """A kernel file that is edited; each save has a time of its own, as a person's saves have."""

    def __init__(self, path):
        self.path = path
        self.saves = 0

    def save(self, text):
        self.path.write_text(text)
        self.saves += 1
        when = self.path.stat().st_mtime_ns + self.saves * 1_000_000_000
        os.utime(self.path, ns=(when, when))


@pytest.fixture
def source(tmp_path):
    made = Source(tmp_path / "kernels.mojo")
    made.save(ADD.format(1))
    return made


def load(source, **options):
    try:
        return torchmojo.load(source.path, **options)
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


def shifted(kernel):
    x = torch.zeros(2)
    kernel(x)
    return x.tolist()


# --- reload ---------------------------------------------------------------------------------------


def test_an_edit_is_loaded(source):
    kernels = load(source)
    old = kernels.shift
    assert shifted(old) == [1, 1]
    source.save(ADD.format(10))
    assert shifted(kernels.shift) == [1, 1]  # not before reload()
    assert kernels.reload() is kernels
    assert shifted(kernels.shift) == shifted(kernels["shift"]) == [10, 10]
    assert shifted(next(iter(kernels))) == [10, 10]
    assert shifted(old) == [1, 1] and old is not kernels.shift
    gc.collect()
    assert shifted(old) == [1, 1]
    source.save(ADD.format(1))
    assert shifted(kernels.reload().shift) == [1, 1]


def test_old_kernels_refuse_as_before(source, refused):
    kernels = load(source)
    old = kernels.shift
    source.save(ADD.format(10))
    kernels.reload()
    del kernels
    gc.collect()
    assert refused(torchmojo.ShapeError, old, torch.zeros(1, 1)).startswith("shift: dst: wanted 1")
    assert str(old).startswith("shift(dst: MutTensor[float32, 1])\n\nAdds one.")


def test_a_kernel_that_disappears(source):
    source.save(TWO)
    kernels = load(source)
    other = kernels.other
    assert len(kernels) == 2 and "other" in dir(kernels)
    source.save(ADD.format(1))
    kernels.reload()
    assert len(kernels) == 1 and "other" not in dir(kernels) and not hasattr(kernels, "other")
    with pytest.raises(KeyError, match="other"):
        kernels["other"]
    assert str(kernels) == (
        f"<torchmojo library {source.path}>\n  shift(dst: MutTensor[float32, 1])"
    )
    with pytest.raises(torchmojo.KernelError, match=r"^other: other$"):
        other(torch.zeros(1))


def test_a_compile_error_keeps_the_old_kernels(source):
    kernels = load(source)
    kept = kernels.shift
    source.save(BROKEN)
    for _ in range(2):  # a failure is not remembered as a success
        with pytest.raises(CompileError) as caught:
            kernels.reload()
        text = str(caught.value)
        line = BROKEN[: BROKEN.index("missing")].count("\n") + 1
        assert f"{source.path}:{line}:" in text
        assert "use of unknown declaration 'missing'" in text and "dst[i] += missing" in text
        assert "glue" not in text.lower()
    assert kernels.shift is kept and shifted(kept) == [1, 1]
    source.save(ADD.format(10))
    assert shifted(kernels.reload().shift) == [10, 10]


def test_an_error_in_a_signature_keeps_the_old_kernels(source):
    kernels = load(source)
    source.save(HEAD + "def shift(dst: MutTensor[DType.float32, 1], how: Set[Int]):\n    pass\n")
    with pytest.raises((CompileError, torchmojo.SignatureError)):
        kernels.reload()
    assert shifted(kernels.shift) == [1, 1]


def test_a_file_that_is_gone(source):
    kernels = load(source)
    source.path.unlink()
    with pytest.raises(FileNotFoundError, match="kernels"):
        kernels.reload()
    assert shifted(kernels.shift) == [1, 1]


def test_an_import_is_a_part_of_the_source(source, tmp_path):
    helper = Source(tmp_path / "helper.mojo")
    helper.save("def amount() -> Float32:\n    return 1\n")
    source.save("from helper import amount\n" + ADD.format("amount()"))
    kernels, watched = load(source), load(source, watch=True)
    assert shifted(kernels.shift) == shifted(watched.shift) == [1, 1]
    helper.save("def amount() -> Float32:\n    return 10\n")
    assert shifted(kernels.reload().shift) == shifted(watched.shift) == [10, 10]


def test_reload_of_a_text():
    kernels = torchmojo.inline(ADD.format(1))
    old = kernels.shift
    assert shifted(kernels.reload().shift) == shifted(old) == [1, 1]


def test_kernels_of_before_are_freed(source):
    kernels = load(source)
    old = weakref.ref(kernels.shift)
    kernels.reload()
    gc.collect()
    assert old() is None


# --- saved while it is compiled -------------------------------------------------------------------


def test_a_source_saved_during_compilation(source, monkeypatch):
    """What is compiled then may be the old text or the new one: neither may pass for the other."""
    text = ADD.format(f"1.0{int(os.urandom(4).hex(), 16)}")
    source.save(text)
    compile_ = toolchain._compile
    runs = []

    def slow(compiler, contract, *args):
        runs.append(contract)
        if len(runs) > 1:
            return compile_(compiler, contract, *args)
        source.save(ADD.format(10))
        return contract

    monkeypatch.setattr(toolchain, "_compile", slow)
    kernels = load(source, watch=True)
    assert shifted(kernels.shift) == [10, 10]
    source.save(text)  # the entry of this text is no other text's
    assert shifted(kernels.shift)[0] == pytest.approx(1, abs=0.2)
    assert runs


# --- watch ----------------------------------------------------------------------------------------


def test_watch_sees_an_edit_at_the_next_use(source):
    kernels = load(source, watch=True)
    old = kernels.shift
    assert kernels.shift is old  # nothing changed
    for number, use in enumerate(
        (
            lambda: kernels.shift,
            lambda: kernels["shift"],
            lambda: next(iter(kernels)),
            lambda: getattr(kernels, "shift"),  # noqa: B009
        )
    ):
        source.save(ADD.format((10, 1)[number % 2]))
        assert shifted(use()) == [(10.0, 1.0)[number % 2]] * 2
    assert shifted(old) == [1, 1]


def test_watch_and_a_compile_error(source):
    kernels = load(source, watch=True)
    old = kernels.shift
    source.save(BROKEN)
    for _ in range(2):
        with pytest.raises(CompileError, match="missing"):
            kernels.shift  # noqa: B018
    assert shifted(old) == [1, 1]
    source.save(ADD.format(10))
    assert shifted(kernels.shift) == [10, 10]


def test_watch_and_kernels_that_come_and_go(source):
    kernels = load(source, watch=True)
    with pytest.raises(AttributeError) as caught:
        kernels.other  # noqa: B018
    assert str(caught.value) == "kernels.mojo: no kernel 'other'; it has shift"
    source.save(TWO)
    with pytest.raises(torchmojo.KernelError):
        kernels.other(torch.zeros(1))
    source.save(ADD.format(1))
    assert not hasattr(kernels, "other") and hasattr(kernels, "shift")


# --- pickle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(source, watch, protocol):
    kernels = load(source, watch=watch)
    again, kernel = pickle.loads(pickle.dumps((kernels, kernels.shift), protocol))
    assert again is not kernels and type(again) is type(kernels) and str(again) == str(kernels)
    assert shifted(again.shift) == shifted(kernel) == [1, 1]
    assert kernel._library is again


def test_pickle_keeps_the_options(source):
    kernels = load(source, bounds=True, fast_math=True, include=[source.path.parent])
    again = pickle.loads(pickle.dumps(kernels))
    assert again._options == kernels._options and again._built.folder == kernels._built.folder
    assert again._options.bounds and again._options.fast_math


def test_copies_load_again(source):
    kernels = load(source)
    for made in (copy.copy(kernels), copy.deepcopy(kernels)):
        assert made is not kernels and shifted(made.shift) == [1, 1]
    for kernel in (copy.copy(kernels.shift), copy.deepcopy(kernels.shift)):
        assert shifted(kernel) == [1, 1]


def test_pickle_of_a_kernel_called_like_a_method(source):
    """`library.reload` is the method, so the kernel is found as an item."""
    source.save(ADD.format(1) + ADD.format(10)[len(HEAD) :].replace("shift", "reload"))
    kernels = load(source)
    assert callable(kernels.reload) and kernels.reload() is kernels
    kernel = pickle.loads(pickle.dumps(kernels["reload"]))
    assert shifted(kernel) == shifted(kernels["reload"]) == [10, 10]


def test_pickle_in_another_folder(source, monkeypatch, tmp_path):
    """Paths are absolute: where the process that loads it works does not matter."""
    monkeypatch.chdir(tmp_path)
    kernels = torchmojo.load("kernels.mojo")
    data = pickle.dumps(kernels.shift)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert shifted(pickle.loads(data)) == [1, 1]


def test_in_a_spawned_worker(source):
    """A worker has no kernels; it loads them by what was pickled."""
    text = torchmojo.inline(
        HEAD + "def twice(x: Int, t: Tensor[DType.float32, 1]) -> Int:\n"
        "    return 2 * x + t.dim(0)\n"
    )
    kernels = load(source)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(text.twice, (21, np.zeros(1, dtype=np.float32))) == 43
        with pytest.raises(
            torchmojo.ShapeError, match=r"^shift: dst: wanted 1 axis, given f32\[\]"
        ):
            pool.apply(kernels.shift, (np.zeros((), dtype=np.float32),))
        assert pool.apply(len, (kernels,)) == 1
        assert str(pool.apply(copy.copy, (kernels.shift,))) == str(kernels.shift)
