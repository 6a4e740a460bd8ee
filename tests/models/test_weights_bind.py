"""Weights under models: by address, with ties, and with one table of what does not fit."""

import gc
import weakref

import pytest
import torch
from torch import nn

from torchmojo import ArgumentError, WeightsError, open_weights

from . import hostile


class Net(nn.Module):
    """Has parameters, buffers that persist and one that does not, and a part that has a say."""

    def __init__(self, norm=True):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4) if norm else nn.Identity()
        self.register_buffer("seen", torch.arange(2))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x):
        return self.norm(self.first(x))


def meta(made, **options):
    with torch.device("meta"):
        return made(**options)


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "with a say"])
@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_bind_puts_views_of_the_file_under_a_module(tmp_path, norm, place):
    saved = Net(norm=norm).eval()
    path = hostile.saved(tmp_path / "m.pt", saved.state_dict())
    module = (meta(Net, norm=norm) if place == "meta" else Net(norm=norm)).eval()
    scratch = module.scratch
    with open_weights(path) as weights:
        assert weights.bind(module) == ([], [])
        for name, tensor in module.state_dict().items():
            assert tensor.data_ptr() == weights.tensor(name).data_ptr()
            assert torch.equal(tensor, saved.state_dict()[name])
    assert module.first.weight.requires_grad and not module.frozen.requires_grad
    assert isinstance(module.frozen, nn.Parameter) and module.scratch is scratch
    x = torch.randn(5, 3)
    assert torch.equal(module(x), saved(x))


def test_training_a_bound_module_leaves_the_file(tmp_path):
    path = hostile.saved(tmp_path / "m.pt", Net().state_dict())
    before = path.read_bytes()
    module = Net()
    with open_weights(path) as weights:
        weights.bind(module)
    start = module.first.weight.detach().clone()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module(torch.randn(8, 3)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(module.first.weight, start)
    assert path.read_bytes() == before


TABLE = """\
bind: m.pt: wanted the names, dtypes and shapes of a Net, given others:
name          wanted    given
seen          i64[2]    –         missing
first.weight  f32[4,3]  f32[4,5]  wrong shape
first.bias    f32[4]    f64[4]    wrong dtype
extra         –         f32[1]    unexpected
check that it is the file of this model; strict=False leaves out missing and unexpected"""


def test_all_that_does_not_fit_is_in_one_table(tmp_path):
    state = Net(norm=False).state_dict()
    del state["seen"]
    state |= {"first.weight": torch.zeros(4, 5), "first.bias": torch.zeros(4).double()}
    state["extra"] = torch.zeros(1)
    module = Net(norm=False)
    before = dict(module.state_dict(keep_vars=True))
    with open_weights(hostile.saved(tmp_path / "m.pt", dict(state))) as weights:
        with pytest.raises(WeightsError) as caught:
            weights.bind(module)
        assert str(caught.value) == TABLE
        with pytest.raises(WeightsError) as caught:
            weights.bind(module, strict=False)
        assert "missing\n" not in str(caught.value) and "wrong shape" in str(caught.value)
    after = module.state_dict(keep_vars=True)
    assert all(after[name] is before[name] for name in before)


@pytest.mark.parametrize("norm", [False, True])
def test_not_strict(tmp_path, norm):
    state = Net(norm=norm).state_dict()
    del state["seen"]
    state["extra"] = torch.zeros(1)
    module = Net(norm=norm)
    with open_weights(hostile.saved(tmp_path / "m.pt", dict(state))) as weights:
        assert weights.bind(module, strict=False) == (["seen"], ["extra"])
        assert module.first.weight.data_ptr() == weights.tensor("first.weight").data_ptr()
    assert module.seen.tolist() == [0, 1]


def test_the_error_tells_where_the_names_are(tmp_path):
    path = hostile.saved(tmp_path / "m.pt", {"model": Net().state_dict(), "epoch": 1})
    with open_weights(path) as weights, pytest.raises(WeightsError) as caught:
        weights.bind(Net())
    assert str(caught.value).endswith("the file has them below model: open it with key='model'")
    with open_weights(path, key="model") as weights:
        weights.bind(Net())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.emb.weight


@pytest.mark.parametrize("stored", ["both", "one", "other", "equal"])
def test_what_was_one_parameter_stays_one(tmp_path, stored):
    state = dict(Tied().state_dict())
    if stored in ("one", "other"):  # as safetensors' save_model does
        del state["head.weight" if stored == "one" else "emb.weight"]
    elif stored == "equal":
        state["head.weight"] = state["head.weight"].clone()
    expected = next(iter(state.values()))
    module = meta(Tied)
    with open_weights(hostile.saved(tmp_path / "m.pt", state)) as weights:
        assert weights.bind(module) == ([], [])
    assert module.head.weight is module.emb.weight
    assert torch.equal(module.head.weight, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "uint16", "complex64"])
def test_what_was_stored_twice_is_compared_by_bits(tmp_path, dtype):
    """NaN is not equal to itself, and torch.equal does not know all dtypes."""
    bits = torch.tensor([0xFF] * 16, dtype=torch.uint8).view(getattr(torch, dtype))
    module = nn.Module()
    module.a = module.b = nn.Parameter(torch.zeros_like(bits), requires_grad=False)
    path = hostile.saved(tmp_path / "m.pt", {"a": bits, "b": bits.clone()})
    with open_weights(path) as weights:
        assert weights.bind(module) == ([], [])
        assert module.a is module.b
        assert module.a.view(torch.uint8).tolist() == [0xFF] * 16
    other = bits.clone()
    other.view(torch.uint8)[-1] = 0x80
    with open_weights(hostile.saved(tmp_path / "n.pt", {"a": bits, "b": other})) as weights:
        with pytest.raises(WeightsError, match="tied in the model, another tensor"):
            weights.bind(module)


def test_two_contents_for_one_parameter(tmp_path):
    state = dict(Tied().state_dict())
    state["head.weight"] = torch.zeros(5, 3)
    module = Tied()
    with open_weights(hostile.saved(tmp_path / "m.pt", state)) as weights:
        with pytest.raises(
            WeightsError, match=r"head\.weight +as emb\.weight +another +tied in the"
        ):
            weights.bind(module)
        with pytest.raises(WeightsError, match="tied in the model"):
            weights.bind(module, strict=False)


def test_a_module_used_twice_and_hooks(tmp_path):
    calls = []

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(2, 2)
            self.two = self.one

    path = hostile.saved(tmp_path / "m.pt", Twice().state_dict())
    module = Twice()
    module.register_load_state_dict_post_hook(lambda *_: calls.append(1))
    with open_weights(path) as weights:
        weights.bind(module)
        assert module.two.weight.data_ptr() == weights.tensor("one.weight").data_ptr()
    assert module.two.weight is module.one.weight and calls == [1]


def test_a_lazy_module(tmp_path):
    path = hostile.saved(tmp_path / "m.pt", nn.Linear(3, 2).state_dict())
    module = nn.LazyLinear(2)
    with open_weights(path) as weights:
        weights.bind(module)
        assert module(torch.zeros(1, 3)).tolist() == weights.tensor("bias")[None].tolist()


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "with a say"])
def test_parameters_stay_the_objects_that_they_are(tmp_path, norm):
    """An optimizer of before goes on with them; a graph of before is refused, not used."""
    saved = Net(norm=norm)
    path = hostile.saved(tmp_path / "m.pt", saved.state_dict())
    module = Net(norm=norm)
    before = dict(module.named_parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    graph = module.first.weight.square().sum()
    with open_weights(path) as weights:
        weights.bind(module)
        address = weights.tensor("first.weight").data_ptr()
    after = dict(module.named_parameters())
    assert before.keys() == after.keys() and all(after[n] is before[n] for n in before)
    assert module.first.weight.data_ptr() == address
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        graph.backward()
    optimizer.zero_grad()
    module(torch.randn(8, 3)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(module.first.weight, saved.first.weight)
    assert torch.equal(module.frozen, saved.frozen)


def test_parameters_that_cannot_take_memory_are_replaced(tmp_path):
    class Own(nn.Parameter):
        pass

    path = hostile.saved(tmp_path / "m.pt", {"a": torch.ones(2), "b": torch.ones(2)})
    module = nn.Module()
    module.a = Own(torch.zeros(2))
    with torch.inference_mode():
        module.b = nn.Parameter(torch.zeros(2))
    before = module.a, module.b
    with open_weights(path) as weights:
        weights.bind(module)
    assert module.a is not before[0] and module.b is not before[1]
    assert module.a.tolist() == module.b.tolist() == [1, 1] and before[0].tolist() == [0, 0]


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "with a say"])
@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_bind_for_inference_and_train_later(tmp_path, place, norm):
    path = hostile.saved(tmp_path / "m.pt", Net(norm=norm).state_dict())
    module = meta(Net, norm=norm) if place == "meta" else Net(norm=norm)
    with torch.inference_mode(), open_weights(path) as weights:
        weights.bind(module)
        assert not weights.tensor("first.weight").is_inference()
    assert module.first.weight.requires_grad and not module.first.weight.is_inference()
    module(torch.randn(5, 3)).square().sum().backward()
    assert module.first.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "with a say"])
def test_a_default_device_moves_no_weights(tmp_path, norm):
    saved = Net(norm=norm)
    path = hostile.saved(tmp_path / "m.pt", {**saved.state_dict(), "e": torch.zeros(0, 3)})
    with torch.device("meta"), open_weights(path) as weights:
        module = Net(norm=norm)
        module.register_buffer("e", torch.zeros(0, 3))
        weights.bind(module)
        assert weights["first.weight"].shape == (4, 3)
        assert weights.tensor("e").device.type == "cpu"
    assert module.first.weight.device.type == "cpu"
    assert torch.equal(module.first.weight, saved.first.weight)


class Extra(nn.Module):
    """Has a state that is neither parameter nor buffer."""

    def __init__(self, state):
        super().__init__()
        self.part = nn.Linear(2, 2)
        self.state = state

    def get_extra_state(self):
        return self.state

    def set_extra_state(self, state):
        self.state = state


def test_extra_state_that_is_a_tensor(tmp_path):
    path = hostile.saved(tmp_path / "m.pt", nn.Sequential(Extra(torch.ones(3))).state_dict())
    module = nn.Sequential(Extra(torch.zeros(3)))
    with open_weights(path) as weights:
        assert weights.bind(module) == ([], [])
    assert module[0].state.tolist() == [1, 1, 1]


def test_extra_state_that_is_none_is_not_lost_in_silence(tmp_path):
    path = hostile.saved(tmp_path / "m.pt", nn.Sequential(Extra({"scale": 7})).state_dict())
    module = nn.Sequential(Extra({"scale": 1}))
    with open_weights(path) as weights:
        with pytest.raises(WeightsError, match=r"0\._extra_state .* missing\nextra state is read"):
            weights.bind(module)
        assert weights.bind(module, strict=False) == (["0._extra_state"], [])
        assert torch.equal(module[0].part.weight, weights.tensor("0.part.weight"))
    assert module[0].state == {"scale": 1}


def test_hooks_that_rename(tmp_path):
    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.new = nn.Linear(2, 2)
            self.register_load_state_dict_pre_hook(self.rename)

        def rename(self, _, state, prefix, *more):
            for name in [name for name in state if name.startswith(f"{prefix}old.")]:
                state[name.replace("old.", "new.")] = state.pop(name)

    old = nn.Linear(2, 2)
    state = {f"old.{name}": tensor for name, tensor in old.state_dict().items()}
    with open_weights(hostile.saved(tmp_path / "m.pt", state)) as w:
        module = Renamed()
        with pytest.raises(WeightsError, match="names are compared before the model's hooks may"):
            w.bind(module)
        module.load_state_dict({n: w.tensor(n) for n in w}, assign=True)  # as the text says
        assert module.new.weight.data_ptr() == w.tensor("old.weight").data_ptr()


def test_hooks_that_leave_something_out(tmp_path):
    module = nn.Linear(2, 2)
    module.register_load_state_dict_pre_hook(lambda _, state, *more: state.pop("bias"))
    with open_weights(hostile.saved(tmp_path / "m.pt", module.state_dict())) as weights:
        with pytest.raises(WeightsError, match="given some that left out bias; the rest was bound"):
            weights.bind(module)


def test_no_model(tmp_path):
    with open_weights(hostile.saved(tmp_path / "m.pt")) as weights:
        with pytest.raises(
            ArgumentError, match=r"bind: model: wanted a torch\.nn\.Module .* a dict"
        ):
            weights.bind({})
        script = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
        with pytest.raises(ArgumentError, match="given a TorchScript module, whose memory is its"):
            weights.bind(script)


# --- compiled models ----------------------------------------------------------------------------


class Loader:
    """Takes constants as torch's C++ loader does, and keeps addresses alone."""

    def __init__(self, names, device="cpu"):
        self.names, self.device = names, device

    def get_metadata(self):
        return {"AOTI_DEVICE_KEY": self.device}

    def get_constant_fqns(self):
        return self.names

    def load_constants(self, constants, use_inactive, check_full_update, user_managed):
        self.given = use_inactive, check_full_update, user_managed
        self.addresses = {name: t.data_ptr() for name, t in constants.items()}
        self.refs = [weakref.ref(t) for t in constants.values()]


def test_a_compiled_model_uses_the_mapping(tmp_path):
    path = hostile.saved(tmp_path / "m.pt")
    loader = Loader(["w"])
    with open_weights(path) as weights:
        assert weights.bind(loader, signature=weights.signature) == ([], [])
        assert loader.addresses == {"w": weights.tensor("w").data_ptr()}
    assert loader.given == (False, True, True)
    gc.collect()
    refs = loader.refs
    assert all(ref() is not None for ref in refs), "freed while the model uses it"
    del loader
    gc.collect()
    assert all(ref() is None for ref in refs)


W = torch.arange(6.0).reshape(2, 3)
UNFIT = {
    "shape": ({"w": W}, {"w": torch.zeros(3)}, "w     f32[2,3]  f32[3]  wrong shape"),
    "double": ({"w": W}, {"w": W.double()}, "w     f32[2,3]  f64[2,3]  wrong dtype"),
    "half": ({"w": W}, {"w": W.half()}, "w     f32[2,3]  f16[2,3]  wrong dtype"),
    "turned": (
        {"w": W}, {"w": W.t().contiguous().t()},
        "w     strides(3,1)  strides(1,2)  wrong strides",
    ),
    "not turned": (
        {"w": W.t().contiguous().t()}, {"w": W},
        "w     strides(1,2)  strides(3,1)  wrong strides",
    ),
    "pair": (
        {"w": ("float32", (2, 3))}, {"w": W.t().contiguous().t()},
        "w     strides(3,1)  strides(1,2)  wrong strides",
    ),
    "missing": ({"w": W}, {"v": W}, "w     f32[2,3]  –      missing"),
    "not said": ({"v": W}, {"w": W}, "w     –       f32[2,3]  in the model, not in the signature"),
}  # fmt: skip


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("case", UNFIT)
def test_a_compiled_model_that_does_not_fit(tmp_path, case, strict):
    """It compares nothing itself, and would read what lies behind; strict=False is no way out."""
    agreed, given, words = UNFIT[case]
    loader = Loader(["w"])
    with open_weights(hostile.saved(tmp_path / "m.pt", given)) as weights:
        with pytest.raises(WeightsError) as caught:
            weights.bind(loader, strict=strict, signature=agreed)
    text = str(caught.value)
    assert words.split() == next(li for li in text.splitlines() if li.startswith("w ")).split()
    assert "strict=False" not in text and text.endswith("it would read other bytes than it has")
    assert not hasattr(loader, "given"), "the model was touched"


def test_what_fits_a_compiled_model(tmp_path):
    turned = torch.arange(6.0).reshape(3, 2).t()
    state = {"w": turned, "one": torch.zeros(4, 1).t(), "none": torch.zeros(3, 0).t(), "folded": W}
    agreed = {**state, "one": ("float32", (1, 4)), "none": ("float32", (0, 3)), "else": W}
    with open_weights(hostile.saved(tmp_path / "m.pt", state)) as weights:
        loader = Loader(["w", "one", "none"])
        assert weights.bind(loader, signature=agreed) == ([], ["folded"])
        assert loader.given == (False, True, True)
        assert weights.bind(Loader([]), signature={}) == ([], list(state))


def test_the_signature_of_a_compiled_model(tmp_path):
    path = hostile.saved(tmp_path / "m.pt")
    with open_weights(path) as weights:
        with pytest.raises(ArgumentError, match=r"signature: wanted dtypes, .*state_dict\(\) of"):
            weights.bind(Loader(["w"]))
        with pytest.raises(ArgumentError, match=r"bind: signature: wanted a mapping .* given 3;"):
            weights.bind(Loader(["w"]), signature=3)
        with pytest.raises(ArgumentError, match="compiled for the CPU, given one for cuda, which"):
            weights.bind(Loader(["w"], "cuda"), signature=weights.signature)
        with pytest.raises(ArgumentError, match="bind: signature: wanted none for a module"):
            weights.bind(nn.Linear(2, 2), signature=weights.signature)
        agreed = weights.signature
    with open_weights(path, signature=agreed) as weights:
        assert weights.bind(Loader(["w"])) == ([], [])


MISFIT = """
    import torch, torchmojo
    right = dict(torch.load("m.pt"))
    name = "0.weight"
    w = right[name]
    wrong = {
        "small": {**right, name: torch.ones(4)},
        "double": {**right, name: w.double()},
        "half": {**right, name: w.half()},
        "turned": {**right, name: w.t().contiguous().t()},
        "missing": {n: t for n, t in right.items() if n != name},
    }
    loader = torch._C._aoti.AOTIModelPackageLoader("m.pt2", "model", False, 1, -1)
    for case, state in wrong.items():
        torch.save(state, "other.pt")
        for strict in (True, False):
            try:
                with torchmojo.open_weights("other.pt") as weights:
                    weights.bind(loader, strict=strict, signature=right)
                loader.run([torch.ones(4, 3)])
                print(case, "ran")
            except torchmojo.WeightsError as error:
                print(case, "refused")
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, in torch.export
def test_a_model_of_aotinductor(tmp_path, child):
    module = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2)).eval()
    x = torch.randn(4, 3)
    package = torch._inductor.aoti_compile_and_package(
        torch.export.export(module, (x,)),
        package_path=str(tmp_path / "m.pt2"),
        inductor_configs={"aot_inductor.package_constants_in_so": False},
    )
    path = hostile.saved(tmp_path / "m.pt", module.state_dict())
    expected = module(x)
    loader = torch._C._aoti.AOTIModelPackageLoader(package, "model", False, 1, -1)
    compiled = torch._inductor.aoti_load_package(package)
    with open_weights(path, signature=module.state_dict()) as weights:
        weights.bind(loader)
        weights.bind(compiled, signature=module.state_dict())
        bias = weights.tensor("0.bias")
    gc.collect()
    torch.testing.assert_close(loader.run([x])[0], expected)
    torch.testing.assert_close(compiled(x), expected)
    bias -= 1e6  # it is this memory that they use: nothing passes the ReLU now
    assert torch.equal(loader.run([x])[0], module[2].bias.expand(4, 2))
    done = child(MISFIT)
    assert done.returncode == 0, done.stderr
    cases = ("small", "double", "half", "turned", "missing")
    assert done.stdout.splitlines() == [f"{case} refused" for case in cases for _ in range(2)]
