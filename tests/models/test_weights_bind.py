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

    def __init__(self, names):
        self.names = names

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
        assert weights.bind(loader) == ([], [])
        assert loader.addresses == {"w": weights.tensor("w").data_ptr()}
    assert loader.given == (False, True, True)
    gc.collect()
    refs = loader.refs
    assert all(ref() is not None for ref in refs), "freed while the model uses it"
    del loader
    gc.collect()
    assert all(ref() is None for ref in refs)


def test_a_compiled_model_that_does_not_fit(tmp_path):
    with open_weights(hostile.saved(tmp_path / "m.pt")) as weights:
        with pytest.raises(WeightsError, match=r"v +– +missing\ncheck"):
            weights.bind(Loader(["v"]))
        assert weights.bind(Loader([])) == ([], ["w"])  # folded into the code
        loader = Loader(["w", "v"])
        assert weights.bind(loader, strict=False) == (["v"], [])
        assert loader.given == (False, False, True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, in torch.export
def test_a_model_of_aotinductor(tmp_path):
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
    with open_weights(path) as weights:
        weights.bind(loader)
        weights.bind(compiled)
        bias = weights.tensor("0.bias")
    gc.collect()
    torch.testing.assert_close(loader.run([x])[0], expected)
    torch.testing.assert_close(compiled(x), expected)
    bias -= 1e6  # it is this memory that they use: nothing passes the ReLU now
    assert torch.equal(loader.run([x])[0], module[2].bias.expand(4, 2))
