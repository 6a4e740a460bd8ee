"""The functions as torch operators: opcheck, compiled and exported, with sizes that vary."""

import subprocess
import sys
import textwrap

import pytest
import torch

from torchmojo import vision
from torchmojo.vision import operators

from .test_decode import normal, random
from .test_nms import make

BOXES, SCORES = make(40, 0)
GROUPS = (torch.arange(40) % 3)[:, None]
MAPS = normal(2, 2, 2, 3, 4)
CALLS = {
    "nms": (BOXES, SCORES, 0.5, 10, 0.25, False),
    "batched_nms": (BOXES, SCORES, GROUPS, 0.5, None, None, True),
    "soft_nms": (BOXES, SCORES, 0.5, 0.5, 0.25, True),
    "decode_heatmap": (random(1, 2, 1, 3, 4), MAPS, MAPS, 0.5, 4.0, MAPS),
    "decode_ssd": (normal(1, 1, 9, 6), random(1, 1, 9, 2), random(2, 9, 4), 0.5),
    "decode_yolo": (random(1, 2, 5, 7), 0.25, True),
    "decode_mtcnn": (random(1, 2, 5, 7), normal(1, 2, 4, 5, 7), 0.5),
}
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name):
    overload = getattr(torch.ops.torchmojo_vision, name).default
    torch.library.opcheck(overload, CALLS[name], test_utils=CHECKS)
    assert set(CALLS) == set(operators._FILES)


def test_the_schema_begins_as_torchvision_s():
    schema = str(torch.ops.torchmojo_vision.nms.default._schema)
    wanted = "torchmojo_vision::nms(Tensor boxes, Tensor scores, float iou_threshold, "
    assert schema.startswith(wanted)
    keep = torch.ops.torchmojo_vision.nms(BOXES, SCORES, 0.5)
    assert keep.tolist() == vision.nms(BOXES, SCORES, 0.5).tolist()


class Detector(torch.nn.Module):
    """Decodes, suppresses by picture and class, and gathers."""

    def forward(self, predictions):
        found = vision.decode_yolo(predictions * 1.0, score_threshold=0.05)
        groups = torch.stack([found.images, found.classes], 1)
        keep = vision.batched_nms(found.boxes, found.scores, groups, 0.3, max_output=20)
        return found.boxes[keep] + 1, found.scores[keep]


@pytest.mark.slow
def test_compiled():
    torch.compiler.reset()
    compiled = torch.compile(Detector(), fullgraph=True)
    for rows in (30, 31, 60):
        predictions = random(rows, 2, rows, 8)
        torch.testing.assert_close(compiled(predictions), Detector()(predictions))


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_opcheck_under_aot(name):
    overload = getattr(torch.ops.torchmojo_vision, name).default
    torch.library.opcheck(overload, CALLS[name])


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_exported_and_loaded_elsewhere(tmp_path, strict):
    predictions = random(1, 2, 40, 8)
    rows = {"predictions": {1: torch.export.Dim("rows", min=2, max=100)}}
    program = torch.export.export(Detector(), (predictions,), dynamic_shapes=rows, strict=strict)
    torch.export.save(program, tmp_path / "detector.pt2")
    other = random(2, 2, 77, 8)
    torch.save((other, Detector()(other)), tmp_path / "wanted.pt")
    script = """
        import torch, torchmojo.vision
        torchmojo.vision.register_operators()
        given, wanted = torch.load("wanted.pt")
        found = torch.export.load("detector.pt2").module()(given)
        torch.testing.assert_close(tuple(found), tuple(wanted))
        assert len(wanted[0]) > 5
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True)


@pytest.mark.slow
def test_the_first_call_of_a_process_may_be_a_compiled_one(tmp_path):
    script = """
        import torch, torchmojo.vision
        compiled = torch.compile(lambda b, s: b[torchmojo.vision.nms(b, s, 0.5)], fullgraph=True)
        boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 3]])
        assert compiled(boxes, torch.tensor([0.5, 0.75])).tolist() == [[0, 0, 4, 3]]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True)


def test_nothing_is_compiled_on_import(tmp_path):
    # Not even an operator is looked for: an import must not wait for a compiler.
    script = "import torchmojo.vision as v; assert not v.operators._operators"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
