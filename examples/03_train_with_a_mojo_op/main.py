"""Trains a small network on digits; activation, loss and their gradients are Mojo kernels.

Run it: ``python examples/03_train_with_a_mojo_op/main.py``
"""

import gzip
import hashlib
import importlib.metadata
import shutil
import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import torchmojo

KERNELS = Path(__file__).with_name("kernels.mojo")
# 1,797 scanned digits of 8 x 8 pixels, from 0 to 16, and what each shows, last.
DIGITS = "sklearn/datasets/data/digits.csv.gz"
SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
TRAINING, BATCH, EPOCHS, WIDTH, SMOOTHING = 1347, 128, 15, 256, 0.1

# --- the operators -------------------------------------------------------------------------------

kernels = torchmojo.load(KERNELS, dtypes=["float32", "float64"])


@torchmojo.op("digits::bias_gelu", kernels.bias_gelu)
def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torchmojo.op("digits::bias_gelu_backward", kernels.bias_gelu_backward)
def bias_gelu_backward(grad, x, bias):
    return torch.empty_like(x), torch.empty_like(bias)


@bias_gelu.backward
def bias_gelu_gradient(ctx, grad):
    return bias_gelu_backward(grad, ctx.x, ctx.bias)


@torchmojo.op("digits::smooth_cross_entropy", kernels.smooth_cross_entropy)
def smooth_cross_entropy(logits, target, smoothing: float = 0.0) -> torch.Tensor:
    return logits.new_empty(logits.shape[0])


@torchmojo.op("digits::smooth_cross_entropy_backward", kernels.smooth_cross_entropy_backward)
def smooth_cross_entropy_backward(grad, logits, target, smoothing: float = 0.0):
    return torch.empty_like(logits)


@smooth_cross_entropy.backward
def smooth_cross_entropy_gradient(ctx, grad):
    # By name: the target has no gradient.
    slopes = smooth_cross_entropy_backward(grad, ctx.logits, ctx.target, ctx.smoothing)
    return {"logits": slopes}


# --- the network, once with them and once with torch's ------------------------------------------


def with_mojo(model, x, target):
    x = bias_gelu(x @ model["w1"], model["b1"])
    x = bias_gelu(x @ model["w2"], model["b2"])
    return smooth_cross_entropy(x @ model["w3"], target, SMOOTHING).mean()


def with_torch(model, x, target):
    x = F.gelu(x @ model["w1"] + model["b1"], approximate="tanh")
    x = F.gelu(x @ model["w2"] + model["b2"], approximate="tanh")
    return F.cross_entropy(x @ model["w3"], target, label_smoothing=SMOOTHING)


def predict(model, x):
    """Give the class of each row; only torch, so that both networks are judged alike."""
    with torch.no_grad():
        x = F.gelu(x @ model["w1"] + model["b1"], approximate="tanh")
        x = F.gelu(x @ model["w2"] + model["b2"], approximate="tanh")
        return (x @ model["w3"]).argmax(1)


def make_model(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def weight(rows, columns):
        return torch.randn(rows, columns, generator=generator) * (2 / rows) ** 0.5

    model = {
        "w1": weight(64, WIDTH),
        "b1": torch.zeros(WIDTH),
        "w2": weight(WIDTH, WIDTH),
        "b2": torch.zeros(WIDTH),
        "w3": weight(WIDTH, 10),
    }
    return {name: value.requires_grad_() for name, value in model.items()}


def read_digits():
    """Give pictures and classes, shuffled; scikit-learn is never imported."""
    try:
        files = importlib.metadata.files("scikit-learn") or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit("scikit-learn, which holds the digits, is not installed: pip install scikit-learn")
    found = [Path(file.locate()) for file in files if str(file).endswith(DIGITS)]
    if not found:
        sys.exit(f"scikit-learn holds no file {DIGITS}: install another release of it")
    packed = found[0].read_bytes()
    if hashlib.sha256(packed).hexdigest() != SHA256:
        sys.exit(f"{found[0]} is not the file that this example knows: its sha256 differs")
    lines = gzip.decompress(packed).decode("ascii").splitlines()
    rows = torch.from_numpy(np.loadtxt(lines, delimiter=",", dtype=np.float32))
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    return rows[:, :-1] / 16, rows[:, -1].long()


class Training:
    """One network and its optimizer; `step` is what is timed."""

    def __init__(self, loss):
        self.model, self.loss = make_model(), loss
        self.optimizer = torch.optim.SGD(self.model.values(), lr=0.1, momentum=0.9)

    def step(self, x, target):
        self.optimizer.zero_grad()
        loss = self.loss(self.model, x, target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, x, target):
        """Train; give the mean loss of each epoch."""
        order, means = torch.Generator().manual_seed(2), []
        for _ in range(EPOCHS):
            batches = torch.randperm(len(x), generator=order).split(BATCH)
            # The last batch is smaller: leave it out, or a compiled network is compiled twice.
            losses = [self.step(x[b], target[b]) for b in batches if len(b) == BATCH]
            means.append(float(torch.stack(losses).mean()))
        return means


def compiled(loss):
    """Compile a network; where there is no C++ compiler, only torch's tracing is shown."""
    backend = "inductor" if any(map(shutil.which, ("g++", "clang++", "c++"))) else "aot_eager"
    return torch.compile(loss, backend=backend, fullgraph=True, dynamic=False)


# --- what is shown -------------------------------------------------------------------------------


def time_steps(trainings, x, target, rounds=60):
    """Give the median time of a step of each in microseconds; they take turns."""
    times = {name: [] for name in trainings}
    for _ in range(rounds):
        for name, training in trainings.items():
            begin = time.perf_counter()
            training.step(x, target)
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) * 1e6 for name, taken in times.items()}


def plot(curves, height=10):
    """Draw curves as text: one letter each, where they meet a star."""
    low, high = min(map(min, curves.values())), max(map(max, curves.values()))
    columns = 3 * max(map(len, curves.values()))
    lines = [[" "] * columns for _ in range(height)]
    for name, curve in curves.items():
        for epoch, value in enumerate(curve):
            line = lines[round((high - value) / (high - low) * (height - 1))]
            line[3 * epoch] = name[0] if line[3 * epoch] == " " else "*"
    for number, line in enumerate(lines):
        label = high - (high - low) * number / (height - 1)
        print(f"{label:6.2f} | {''.join(line).rstrip()}")
    print(f"       +{'-' * columns} {len(next(iter(curves.values())))} epochs")


def prove_equal():
    """Compare both operators with torch, and their gradients with finite differences."""
    for dtype in (torch.float32, torch.float64):
        x, bias = 3 * torch.randn(130, 37, dtype=dtype), torch.randn(37, dtype=dtype)
        expected = F.gelu(x + bias, approximate="tanh")
        torch.testing.assert_close(bias_gelu(x, bias), expected)
        target = torch.arange(130) % 37
        expected = F.cross_entropy(x, target, reduction="none", label_smoothing=SMOOTHING)
        torch.testing.assert_close(smooth_cross_entropy(x, target, SMOOTHING), expected)
    x, bias = x[:5, :7].requires_grad_(), bias[:7].requires_grad_()
    assert torch.autograd.gradcheck(bias_gelu, (x, bias))
    assert torch.autograd.gradcheck(smooth_cross_entropy, (x, target[:5], SMOOTHING))
    print("proved: both operators equal torch's, their gradients equal finite differences")


def main():
    print(bias_gelu, smooth_cross_entropy, sep="\n")
    prove_equal()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is too small to share
    try:
        train()
    finally:
        torch.set_num_threads(threads)


def train():

    x, target = read_digits()
    seen, unseen = (x[:TRAINING], target[:TRAINING]), (x[TRAINING:], target[TRAINING:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own, of the release of torch
        begin = time.perf_counter()
        trainings = {
            "mojo": Training(with_mojo),
            "torch": Training(with_torch),
            "Mojo, compiled": Training(compiled(with_mojo)),
            "Torch, compiled": Training(compiled(with_torch)),
        }
        curves = {name: training.run(*seen) for name, training in trainings.items()}
    print(f"trained {len(trainings)} networks in {time.perf_counter() - begin:.0f} s")
    plot({name: curves[name] for name in ("mojo", "torch")})

    accuracy = {
        name: float((predict(training.model, unseen[0]) == unseen[1]).float().mean())
        for name, training in trainings.items()
    }
    took = time_steps(trainings, *(part[:BATCH] for part in seen))
    print(f"a step of {BATCH} digits, {torch.get_num_threads()} thread, medians:")
    for name in trainings:
        gain = took[name] / took["torch"]
        print(
            f"{name:>16}: accuracy {accuracy[name]:.4f}, {took[name]:6.0f} us a step, {gain:.2f} "
            "of torch's"
        )
    assert min(accuracy.values()) >= 0.95
    assert max(accuracy.values()) - min(accuracy.values()) <= 0.01
    print("proved: trained with Mojo or with torch, compiled or not, it reads digits as well")


if __name__ == "__main__":
    main()
