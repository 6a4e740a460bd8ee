"""A prepared model: its folder, its answers, and everything that it refuses."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import torchmojo
from torchmojo.dtypes import BY_NAME
from torchmojo.models.prepared import form
from torchmojo.models.prepared.flat import tensor_lines
from torchmojo.models.said import said


@pytest.fixture(scope="module")
def model(small):
    return torchmojo.Model(small)


@pytest.fixture
def copy(small, tmp_path):
    return Path(shutil.copytree(small, tmp_path / "copy"))


@pytest.fixture(scope="module")
def manifest(small):
    return json.loads((small / "manifest.json").read_text("utf-8"))


def assert_same(given, wanted):
    assert given.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(given[name], wanted[name], rtol=1e-5, atol=1e-5)


# --- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 9])
def test_gives_what_the_module_gives(model, small_module, inputs, n):
    given = model(*inputs(n))
    assert_same(given, small_module(*inputs(n)))
    assert given["sum"].shape == (n, 3)
    assert not any(value.requires_grad for value in given.values())


@hypothesis.given(n=st.integers(1, 9), offset=st.integers(0, 3), step=st.integers(1, 3))
@hypothesis.settings(max_examples=25)
def test_any_layout_gives_the_same_answer(model, small_module, inputs, n, offset, step):
    x, y, image = inputs(n)
    wide = torch.full((n * step + offset, 4), torch.nan)
    wide[offset::step] = x
    lain = wide[offset::step]
    with torchmojo.fallback("copy"):
        given = model(lain, y, image.contiguous())
    assert_same(given, small_module(x, y, image))


def test_a_nan_goes_through(model, small_module, inputs):
    x, y, image = inputs(3)
    x[1, 2] = torch.nan
    assert torch.equal(model(x, y, image)["sum"].isnan(), small_module(x, y, image)["sum"].isnan())


def test_weights_are_mapped_and_not_copied(small, small_module, inputs):
    model = torchmojo.Model(small)
    bias = model.weights["first.bias"]
    assert bias.data_ptr() % 64 == 0
    assert torch.equal(bias, small_module.first.bias)
    before = (small / "weights.safetensors").read_bytes()
    bias += 1
    wanted = torch.func.functional_call(
        small_module, {"first.bias": small_module.first.bias + 1}, inputs()
    )
    assert_same(model(*inputs()), wanted)
    assert (small / "weights.safetensors").read_bytes() == before
    assert_same(torchmojo.Model(small)(*inputs()), small_module(*inputs()))


def test_an_output_is_no_view_of_a_weight(small, small_module, inputs):
    model = torchmojo.Model(small)
    model(*inputs())["weight"].fill_(torch.nan)
    assert_same(model(*inputs()), small_module(*inputs()))


def test_outputs_outlive_the_model(small, small_module, inputs):
    model = torchmojo.Model(small)
    given = model(*inputs())
    del model
    assert_same(given, small_module(*inputs()))


@pytest.mark.parametrize("instances", [1, 3])
def test_threads_share_a_model(small, small_module, inputs, instances):
    model = torchmojo.Model(small, instances=instances)
    wanted = {n: small_module(*inputs(n)) for n in range(1, 10)}
    start = threading.Barrier(4)

    def work(first):
        start.wait()
        for turn in range(200):
            n = 1 + (first + turn) % 9
            assert_same(model(*inputs(n)), wanted[n])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_running_imports_no_compiler(small):
    program = f"""
import sys, torch, torchmojo
before = set(sys.modules)
model = torchmojo.Model({str(small)!r})
torch.manual_seed(0)
x, y, image = torch.randn(2, 4), torch.randn(3), torch.randn(2, 3, 7, 5)
model(x, y, image.contiguous(memory_format=torch.channels_last))
heavy = ("torch._inductor", "torch._dynamo", "torch.export", "sympy", "rich", "filelock")
print([name for name in heavy if name in set(sys.modules) - before])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# --- the folder -------------------------------------------------------------------------------


def test_the_manifest_follows_its_schema(manifest):
    jsonschema = pytest.importorskip("jsonschema")
    text = files("torchmojo.models.prepared").joinpath("manifest.schema.json").read_text("utf-8")
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(manifest, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest | {"threads": 0}, schema)


def test_the_manifest_tells_what_the_model_takes_and_gives(manifest):
    x, y, image = manifest["inputs"]
    assert x["sizes"] == [{"name": x["sizes"][0]["name"], "least": 1, "most": 9}, 4]
    assert (y["name"], y["dtype"], y["sizes"]) == ("y", "float32", [3])
    assert (image["order"], image["strides"]) == ([0, 2, 3, 1], [105, 1, 15, 3])
    assert [output["sizes"][1:] for output in manifest["outputs"]] == [[3], [5], [3]]
    assert manifest["threads"] == 1
    assert manifest["versions"]["torch"] == torch.__version__


def test_the_manifest_lists_operators_in_order(manifest):
    targets = [operator["target"] for operator in manifest["operators"]]
    known = ["aten.linear.default", "aten.relu.default", "aten.linear.default"]
    assert targets[:3] == known
    first, second, third = manifest["operators"][:3]
    names = [tensor["name"] for tensor in first["inputs"]]
    assert names == ["x", "first.weight", "first.bias"]
    assert second["inputs"][0]["name"] == first["outputs"][0]["name"]
    assert third["inputs"][0] == second["outputs"][0]
    assert second["outputs"][0]["sizes"][1] == 8


def test_every_file_has_its_digest(small, manifest):
    found = {
        path.name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "nbytes": len(data)}
        for path in small.iterdir()
        if path.name != "manifest.json" and (data := path.read_bytes()) is not None
    }
    assert found == manifest["files"]


def test_weights_are_a_safetensors_file_with_aligned_tensors(small, small_module, manifest):
    safetensors = pytest.importorskip("safetensors.torch")
    found = safetensors.load_file(small / "weights.safetensors")
    real = {name for name in found if not name.startswith("__pad_")}
    assert real == {entry["tensor"] for entry in manifest["weights"].values()}
    for name, weight in small_module.state_dict(keep_vars=True).items():
        if name in manifest["weights"] and weight.is_contiguous():
            assert torch.equal(found[name], weight)
    assert torch.equal(found["turned"], small_module.turned.t().reshape(-1))
    assert all(entry["offset"] % 64 == 0 for entry in manifest["weights"].values())
    tied = [n for n in manifest["weights"] if n in ("second.weight", "tied.weight")]
    assert len({manifest["weights"][name]["tensor"] for name in tied}) == 1


def test_the_index_says_what_the_manifest_says(small, manifest):
    lines = (small / "model.flat").read_text("utf-8").splitlines()
    words = [line.split(" ") for line in lines]
    assert words[0] == ["torchmojo-model", "1"]
    assert words[-1] == ["end", str(len(lines) - 1)]
    constants = {w[1]: [int(v) for v in w[2:]] for w in words if w[0] == "constant"}
    for entry in manifest["weights"].values():
        dtype = BY_NAME[entry["dtype"]].code
        rank = len(entry["sizes"])
        assert constants.pop(entry["constant"]) == [
            *(dtype, entry["offset"], entry["nbytes"], rank),
            *entry["sizes"],
            *entry["strides"],
        ]
    assert constants == {}
    assert [w[1] for w in words if w[0] == "input"] == ["x", "y", "image"]
    assert sum(w[0] == "output" for w in words) == 3


# --- refused: damaged or foreign folders ------------------------------------------------------


def edit(folder, change, index=False):
    """Change the manifest, and the index with it if asked."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    change(manifest)
    if index:
        kinds = ("constant ", "input ", "output ", "end ")
        text = (folder / "model.flat").read_text("utf-8")
        kept = [line for line in text.splitlines() if not line.startswith(kinds)]
        (folder / "model.flat").write_text("\n".join([*kept, *tensor_lines(manifest)]), "utf-8")
    path.write_text(json.dumps(manifest), "utf-8")


@pytest.mark.parametrize("name", ["manifest.json", "model.so", "weights.safetensors"])
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(torchmojo.ModelError, match=f"{name} (is missing|cannot be mapped)"):
        torchmojo.Model(copy)


@pytest.mark.parametrize("name", ["model.so", "weights.safetensors"])
def test_one_changed_byte_is_noticed(copy, name):
    path = copy / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    message = rf"wanted {name} with sha256 \w{{16}}, given \w{{16}}; it was changed or cut off"
    with pytest.raises(torchmojo.ModelError, match=message):
        torchmojo.Model(copy)
    assert torchmojo.Model(copy, verify=False) is not None or name == "model.so"


@pytest.mark.parametrize("name", ["model.so", "weights.safetensors"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_file_that_was_cut_off_is_noticed_without_its_digest(copy, name, verify):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[:-64])
    with pytest.raises(torchmojo.ModelError, match=f"wanted {name} of {len(data)} bytes, given"):
        torchmojo.Model(copy, verify=verify)


def test_a_pinned_manifest_pins_all(copy):
    digest = hashlib.sha256((copy / "manifest.json").read_bytes()).hexdigest()
    torchmojo.Model(copy, sha256=digest)
    torchmojo.Model(copy, sha256=digest.upper())
    for wrong in ("", "12", digest[:-1] + "g", 3):
        with pytest.raises(torchmojo.ArgumentError, match="sha256: wanted 64 hex digits, given"):
            torchmojo.Model(copy, sha256=wrong)
    edit(copy, lambda manifest: manifest.update(threads=2))
    with pytest.raises(torchmojo.ModelError, match=r"wanted manifest\.json with sha256"):
        torchmojo.Model(copy, sha256=digest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "wanted a model of format 1, given 2; prepare it again"),
        ({"made_by": "someone"}, "wanted a folder that torchmojo.prepare wrote"),
        ({"platform": "plan9 mips"}, "given one for plan9 mips; prepare it on such a machine"),
        ({"cpu": {"isa": "", "features": ["avx1024"]}}, "given one that needs avx1024; prepare"),
        (
            {"versions": {"torchmojo": "1", "torch": "1.13.1"}},
            "given one by 1.13.1; prepare it again",
        ),
        ({"files": {}}, "manifest.json is not whole"),
    ],
)
def test_a_model_for_elsewhere_is_refused(copy, change, message):
    edit(copy, lambda manifest: manifest.update(change))
    with pytest.raises(torchmojo.ModelError, match=message):
        torchmojo.Model(copy)


@pytest.mark.parametrize("text", ["", "no json", "[]", "3", "[" * 200_000, '{"a":' * 200_000])
def test_a_manifest_that_is_none_is_refused(copy, text):
    (copy / "manifest.json").write_text(text)
    with pytest.raises(
        torchmojo.ModelError, match=r"wanted a folder that torchmojo\.prepare wrote"
    ):
        torchmojo.Model(copy)


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 2**40},
        {"offset": -64},
        {"offset": 8},
        {"nbytes": 2**62},
        {"nbytes": -4},
        {"sizes": [2**40]},
        {"sizes": [-1]},
        {"strides": [2**40]},
        {"strides": [-1]},
        {"dtype": "float64"},
    ],
)
def test_a_weight_outside_the_file_is_refused(copy, change):
    edit(copy, lambda manifest: manifest["weights"]["first.bias"].update(change))
    with pytest.raises(torchmojo.ModelError, match=r"weights?[ .]first\.bias(\.\w+)*: wanted"):
        torchmojo.Model(copy)


GONE = object()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("calls", GONE),
        ("calls", 3),
        ("calls", ["__dict__"]),
        ("calls", ["torch.ops.aten.add.default"]),
        ("weights", []),
        ("weights first.bias dtype", "nn"),
        ("weights first.bias dtype", 3),
        ("weights first.bias offset", "0"),
        ("weights first.bias offset", 64.0),
        ("weights first.bias offset", True),
        ("weights first.bias sizes", [2, 2]),
        ("weights first.bias sizes", None),
        ("weights first.bias sizes", ["8"]),
        ("weights first.bias sizes", [1] * 70),
        ("weights first.bias constant", 3),
        ("weights first.bias constant", GONE),
        ("versions", []),
        ("versions torch", 2),
        ("platform", None),
        ("cpu features", "abc"),
        ("cpu features", [{}]),
        ("files model.so nbytes", "1"),
        ("files model.so nbytes", GONE),
        ("files model.so sha256", 3),
        ("files model.so sha256", "A" * 64),
        ("files model.flat", GONE),
        ("inputs", {}),
        ("inputs 1 dtype", "nn"),
        ("inputs 1 sizes", "48"),
        ("inputs 1 sizes", [2**40, 2**40]),
        ("inputs 1 sizes", [-3]),
        ("inputs 1 order", [1]),
        ("inputs 1 order", [-1]),
        ("inputs 1 order", []),
        ("inputs 1 strides", []),
        ("inputs 1 name", None),
        ("inputs 1 extra", 1),
        ("inputs 0 sizes", [{"name": "n", "least": 1}, 4]),
        ("inputs 0 sizes", [{"name": "n", "least": 3, "most": 2}, 4]),
        ("outputs", GONE),
        ("result", 3),
        ("threads", -1),
    ],
)
def test_a_manifest_of_another_form_is_refused(copy, place, value):
    *path, last = place.split()

    def change(manifest):
        for word in path:
            manifest = manifest[int(word) if isinstance(manifest, list) else word]
        if value is GONE:
            del manifest[last]
        else:
            manifest[last] = value

    edit(copy, change)
    with pytest.raises(torchmojo.ModelError, match=r"manifest\.json is not whole \(.*; prepare"):
        torchmojo.Model(copy)


def leaf(kind=None, children=(), context=None):
    return {"type": kind, "context": context, "children_spec": list(children)}


@pytest.mark.parametrize(
    "result",
    [
        "x",
        "[]",
        "[" * 200_000,
        [1, leaf()],
        [1, leaf("os.system", [leaf()] * 3, "x")],
        [1, leaf("builtins.tuple", [leaf()] * 4)],
        [1, leaf("builtins.dict", [leaf()] * 3, '["a", "b"]')],
        [1, leaf("builtins.dict", [leaf()] * 3, "true")],
    ],
)
def test_a_result_of_another_form_is_refused(copy, result):
    text = result if isinstance(result, str) else json.dumps(result)
    edit(copy, lambda manifest: manifest.update(result=text))
    with pytest.raises(torchmojo.ModelError, match="wanted the tree of 3 outputs as result"):
        torchmojo.Model(copy)


@pytest.mark.parametrize(
    ("kind", "entry", "change"),
    [
        ("inputs", 1, {"sizes": [8]}),
        ("inputs", 2, {"order": [0, 1, 2, 3]}),
        ("inputs", 1, {"dtype": "float64"}),
        ("weights", "first.bias", {"strides": [0]}),
        ("weights", "first.bias", {"sizes": [7]}),
    ],
)
def test_sizes_that_the_index_does_not_have_are_refused(copy, kind, entry, change):
    """The library itself knows no sizes: it would read past the end of a smaller input."""
    edit(copy, lambda manifest: manifest[kind][entry].update(change))
    with pytest.raises(torchmojo.ModelError, match=r"manifest\.json and model\.flat to say"):
        torchmojo.Model(copy)


def test_the_schema_and_the_reader_agree(manifest):
    """What the reader asks for is in the schema, and the other way round."""
    text = files("torchmojo.models.prepared").joinpath("manifest.schema.json").read_text("utf-8")
    schema = json.loads(text)
    assert schema["required"] == list(form._MANIFEST)
    form.check_form(manifest)
    for name in manifest:
        with pytest.raises(form.FormError, match="lacks"):
            form.check_form({key: manifest[key] for key in manifest if key != name})


@pytest.mark.parametrize("name", ["manifest.json", "model.so", "weights.safetensors", "model.flat"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "terminal"])
def test_what_is_no_regular_file_is_refused(copy, name, kind, child):
    """In a process of its own: a pipe would wait, a device would never end."""
    (copy / name).unlink()
    if kind == "pipe":
        os.mkfifo(copy / name)
    elif kind == "folder":
        (copy / name).mkdir()
    else:
        (copy / name).symlink_to({"device": "/dev/zero", "terminal": "/dev/null"}[kind])
    done = child(f"""
        import resource, signal, torch, torchmojo
        signal.alarm(60)
        try:
            torchmojo.Model({str(copy)!r})
        except torchmojo.ModelError as error:
            print(error)
    """)
    assert f"{name} is no regular file; prepare" in done.stdout, done.stderr[-500:]


def test_no_descriptor_stays_open(small, child):
    done = child(f"""
        import resource, os, torch, torchmojo
        x, y = torch.zeros(2, 4), torch.zeros(3)
        image = torch.zeros(2, 3, 7, 5).contiguous(memory_format=torch.channels_last)
        torchmojo.Model({str(small)!r})(x, y, image)
        before = len(os.listdir("/dev/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        for _ in range(70):
            model = torchmojo.Model({str(small)!r})
            for _ in range(5):
                model(x, y, image)
            del model
        print(len(os.listdir("/dev/fd")) - before)
    """)
    assert done.stdout.strip() == "0", done.stderr[-500:]


def test_a_process_without_descriptors_is_told_so(small, child):
    done = child(f"""
        import resource, os, torch, torchmojo
        torchmojo.Model({str(small)!r})
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        for left in range(8):
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
            for _ in range(left):
                os.close(taken.pop())
            try:
                torchmojo.Model({str(small)!r})
                print("loaded")
            except torchmojo.ModelError as error:
                print("Too many open files" in str(error) or str(error))
    """)
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == 8 and set(lines) <= {"True", "loaded"} and lines[0] == "True", done


def test_errors_of_torch_come_without_frames():
    text = "\nsizes differ\nException raised from add at add.cpp:3\nframe #0: c10::Error\n"
    assert said(RuntimeError(text), 4) == "sizes differ"
    assert said(RuntimeError("a\nb\nc")) == "a" and said(RuntimeError("a\nb\nc"), 2) == "a\nb"
    assert said(RuntimeError("")) == "RuntimeError"
    assert len(said(RuntimeError("x" * 5000))) == 400


def test_a_weight_too_few_is_refused(copy):
    edit(copy, lambda manifest: manifest["weights"].pop("first.bias"), index=True)
    with pytest.raises(torchmojo.ModelError, match="torch cannot load it"):
        torchmojo.Model(copy)


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_an_input_or_output_too_few_is_refused(copy, kind):
    """The library itself would end the process."""
    result = json.dumps([1, leaf("builtins.tuple", [leaf()] * (2 if kind == "outputs" else 3))])
    edit(copy, lambda m: (m[kind].pop(), m.update(result=result)), index=True)
    with pytest.raises(
        torchmojo.ModelError, match=f"wanted a manifest of 3 {kind}, given one of 2"
    ):
        torchmojo.Model(copy)


def test_a_library_that_is_no_library_is_refused(copy):
    (copy / "model.so").write_bytes(b"x" * 100)
    digest = hashlib.sha256(b"x" * 100).hexdigest()
    edit(copy, lambda m: m["files"].update({"model.so": {"sha256": digest, "nbytes": 100}}))
    with pytest.raises(torchmojo.ModelError, match="torch cannot load it"):
        torchmojo.Model(copy)


def test_an_operator_that_nobody_defined_is_named(copy):
    (copy / "model.json").write_text("{}")
    digest = hashlib.sha256(b"{}").hexdigest()

    def change(manifest):
        manifest["calls"] = ["torch.ops.no_such.operator.default"]
        manifest["files"]["model.json"] = {"sha256": digest, "nbytes": 2}

    edit(copy, change)
    with pytest.raises(torchmojo.ModelError, match="wanted the operator no_such::operator, which"):
        torchmojo.Model(copy)


# --- refused: inputs --------------------------------------------------------------------------


def call_with(model, inputs, **replaced):
    values = dict(zip(("x", "y", "image"), inputs(2), strict=True)) | replaced
    return model(*values.values())


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (torch.zeros(2, 4).double(), torchmojo.DTypeError, r"call \.to\(torch\.float32\)"),
        (torch.zeros(2, 5), torchmojo.ShapeError, "axis 1 has a fixed size; prepare makes it vary"),
        (torch.zeros(10, 4), torchmojo.ShapeError, "axis 0 is outside its range"),
        (torch.zeros(0, 4), torchmojo.ShapeError, "axis 0 is outside its range"),
        (torch.zeros(4), torchmojo.ShapeError, "give a tensor with 2 axes"),
        (torch.zeros(2, 4, device="meta"), torchmojo.NoDataError, "memory of its own"),
        (torch.zeros(2, 4).to_sparse(), torchmojo.LayoutError, r"call \.to_dense\(\)"),
        (torch.zeros(2, 4, requires_grad=True), torchmojo.GradError, "computes no gradient"),
        ([[0.0] * 4] * 2, torchmojo.ArgumentError, r"see torch\.as_tensor"),
        (None, torchmojo.ArgumentError, "given None"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(model, inputs, value, error, message):
    with pytest.raises(error, match=message) as caught:
        call_with(model, inputs, x=value)
    assert str(caught.value).startswith("Model: x: wanted f32[")
    assert "=1..9,4] cpu, given " in str(caught.value)


def test_a_fake_tensor_is_refused(model, inputs):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.zeros(2, 4)
    with pytest.raises(torchmojo.NoDataError, match="memory of its own"):
        call_with(model, inputs, x=x)


def test_too_few_inputs(model, inputs):
    with pytest.raises(torchmojo.ArgumentError, match=r"wanted 3 inputs \(x, y, image\), given 1"):
        model(inputs()[0])


def test_a_leaf_is_taken_under_no_grad(model, small_module, inputs):
    x, y, image = inputs(2)
    with torch.no_grad():
        given = model(x.clone().requires_grad_(), y, image)
    assert_same(given, small_module(x, y, image))


def test_lazy_bits_are_resolved_in_a_copy(model, small_module, inputs):
    _, y, image = inputs(2)
    x = torch.view_as_complex(torch.randn(2, 4, 2)).conj().imag
    assert x.is_neg()
    torchmojo.copies(reset=True)
    with torchmojo.fallback("copy"):
        given = model(x, y, image)
    assert_same(given, small_module(x.resolve_neg(), y, image))
    assert [entry.reason for entry in torchmojo.copies()] == ["neg bit"]


def test_a_copy_is_counted_announced_and_refused_by_policy(model, inputs):
    x, y, image = inputs(2)
    turned = image.contiguous()
    torchmojo.copies(reset=True)
    with torchmojo.fallback("error"), pytest.raises(torchmojo.LayoutError, match="layout"):
        model(x, y, turned)
    with torchmojo.no_copies(), pytest.raises(torchmojo.CopyError, match="wanted no copy"):
        model(x, y, turned)
    assert torchmojo.copies() == []
    with torchmojo.fallback("warn"), pytest.warns(torchmojo.CopyWarning, match="copied on its way"):
        model(x, y, turned)
    (entry,) = torchmojo.copies()
    assert (entry.argument, entry.reason, entry.count) == ("image", "layout", 1)
    assert entry.nbytes == image.numel() * 4
    assert entry.place.startswith(__file__)


def test_a_dtype_is_changed_where_asked(model, small_module, inputs):
    x, y, image = inputs(2)
    with torchmojo.fallback("copy", dtype=True):
        given = model(x.double(), y, image)
    assert_same(given, small_module(x, y, image))


def test_repr(model, small):
    assert repr(model) == f"torchmojo.Model({str(small)!r})"


@pytest.mark.parametrize("instances", [0, -1, "1", True, 1.0, 2**40])
def test_instances(small, instances):
    with pytest.raises(torchmojo.ArgumentError, match=r"instances: wanted 1 or more, up to 1024, "):
        torchmojo.Model(small, instances=instances)


def test_a_call_that_fails_says_so_in_a_line(small, inputs, monkeypatch):
    model = torchmojo.Model(small)
    monkeypatch.setattr(model, "_are_right", lambda *values: True)
    _, y, image = inputs(2)
    with pytest.raises(torchmojo.ModelError, match="torch raises: ") as caught:
        model(torch.zeros(2, 5), y, image)
    assert "\n" not in str(caught.value) and "frame #" not in str(caught.value)
