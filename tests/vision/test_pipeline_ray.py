"""The pipeline on a Ray cluster of two workers, beside the same in one process."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from torchmojo.vision import Pipeline, Prepare, TopClasses, centerface, mtcnn
from torchmojo.vision.ready.centerface import WEIGHTS as CENTERFACE
from torchmojo.vision.ready.mtcnn import WEIGHTS as MTCNN


def mean(x):
    return x.mean((2, 3))


def test_a_pipeline_goes_to_another_process():
    pipeline = Pipeline(Prepare(8), mean, TopClasses(2), batch=3, settings="mean")
    again = pickle.loads(pickle.dumps(pipeline))
    image = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    assert torch.equal(again([image])[0].scores, pipeline([image])[0].scores)
    assert (again.batch, again.settings) == (3, "mean")


def test_weights_stay_where_they_are(asset):
    for weights in MTCNN.values():
        asset(weights.package, weights.file, weights.sha256)
    sent = pickle.dumps(mtcnn(least=30))
    assert len(sent) < 1000
    assert pickle.loads(sent).model.least == 30


def test_ray_that_is_absent_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'Ray Data is needed: pip install "torchmojo\[ray\]"'):
        Pipeline(Prepare(8), mean, TopClasses(2)).map_batches(None)


PROGRAM = """
import json, os, sys
import ray, torch
from torchmojo.vision import centerface

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
try:
    pipeline = centerface()
    rows = ray.data.from_items([{"path": p} for p in sys.argv[1:]], override_num_blocks=2)
    found = pipeline.map_batches(rows, workers=2, batch_size=2).take_all()
finally:
    ray.shutdown()
keys = ("source", "error", "boxes", "scores", "labels")
print(json.dumps([[row[k] if not hasattr(row[k], "tolist") else
                   [getattr(v, "tolist", lambda: v)() for v in row[k]] for k in keys]
                  for row in found]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_find_what_one_process_finds(asset, astronaut, tmp_path):
    pytest.importorskip("ray.data", exc_type=ImportError)
    pytest.importorskip("onnx")
    asset(CENTERFACE.package, CENTERFACE.file, CENTERFACE.sha256)
    bad = tmp_path / "bad.png"
    bad.write_text("no picture")
    paths = [str(astronaut), str(bad), str(astronaut), str(astronaut)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *paths],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    given = sorted(json.loads(done.stdout.splitlines()[-1]), key=lambda row: row[0])
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    records = sorted(centerface()(paths), key=lambda record: record.source)
    torch.set_num_threads(before)
    assert [row[:2] for row in given] == [[r.source, r.error] for r in records]
    for (_, error, boxes, scores, labels), record in zip(given, records, strict=True):
        if error is None:
            assert boxes == record.boxes.tolist()
            assert scores == record.scores.tolist()
            assert labels == record.labels.tolist()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_command_on_a_cluster(asset, astronaut, tmp_path):
    pytest.importorskip("ray.data", exc_type=ImportError)
    pytest.importorskip("onnx")
    asset(CENTERFACE.package, CENTERFACE.file, CENTERFACE.sha256)
    out = tmp_path / "out"
    command = [sys.executable, "-W", "ignore", "-m", "torchmojo", "detect", str(astronaut)]
    words = [*command, "--engine", "ray", "--jsonl", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["source"] == str(astronaut)
    assert line["found"][0]["score"] == pytest.approx(0.9291, abs=1e-3)
    assert len((out / "results.jsonl").read_text().splitlines()) == 1
