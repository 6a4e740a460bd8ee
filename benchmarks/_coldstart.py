"""What coldstart.py runs in fresh processes: `python -m benchmarks._coldstart KIND MODEL INPUT`.

Prints ``first SCORE`` as soon as there is one, then times in milliseconds as JSON. It imports no
more than a program would that does the same.
"""

import json
import sys
import time

FORWARDS = 2


def main(kind, model, source):
    import torch

    torch.set_num_threads(1)
    x = torch.from_file(source, dtype=torch.float32, size=3 * 224 * 224).view(1, 3, 224, 224)
    start = time.perf_counter()
    if kind == "script":
        run = torch.jit.load(model).eval()
    elif kind == "eager":
        from benchmarks._resnet import ResNet50

        run = ResNet50().eval()
        run.load_state_dict(torch.load(model, weights_only=True))
    else:
        import torchmojo

        run = torchmojo.Model(model, verify=kind == "prepared")
    loaded = time.perf_counter()
    times = []
    with torch.no_grad():
        for _ in range(FORWARDS):
            begin = time.perf_counter()
            result = run(x)
            times.append((time.perf_counter() - begin) * 1e3)
            if len(times) == 1:
                print("first", result[0, 0].item(), flush=True)
    numbers = {"load": (loaded - start) * 1e3, "first": times[0], "second": times[1]}
    print(json.dumps(numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
