"""The pipeline itself, with models of one line: order, errors, memory, threads, results."""

import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import torchmojo
from torchmojo.vision import (
    Classes,
    Detections,
    Geometry,
    Pipeline,
    Prepare,
    Prepared,
    Results,
    TopClasses,
    multiple_of,
    short_side,
)
from torchmojo.vision.pipeline.draw import annotate
from torchmojo.vision.pipeline.flow import ordered


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Bright:
    """Finds the rectangle of the pixels above a level: the same box in every implementation."""

    def __call__(self, maps):
        boxes, places = [], []
        for place, picture in enumerate(maps):
            ys, xs = (picture[0] > 0.5).nonzero().T
            if len(ys):
                boxes.append([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
                places.append(place)
        n = len(boxes)
        zeros = torch.zeros(n, dtype=torch.int64)
        return Detections(
            torch.tensor(boxes, dtype=torch.float32).reshape(n, 4),
            torch.ones(n),
            zeros,
            torch.tensor(places, dtype=torch.int64),
        )


def picture(box, height=60, width=80):
    """Give a black picture with one white rectangle x0 y0 x1 y1."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    return pixels


def bright(size=None, **options):
    where = (lambda height, width: (height, width)) if size is None else size
    return Pipeline(Prepare(where, fit="letterbox"), torch.nn.Identity(), Bright(), **options)


def boxes_of(records):
    return [None if r.boxes is None else r.boxes.tolist() for r in records]


def save(path, pixels, **options):
    Image.fromarray(pixels).save(path, **options)
    return path


# --- stages and records -----------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_records_come_in_order_with_their_own_boxes(batch, workers):
    wanted = [(3 + k, 5, 20 + 2 * k, 30) for k in range(10)]
    sizes = [(60, 80), (60, 80), (64, 50), (60, 80)]
    images = [picture(box, *sizes[k % 4]) for k, box in enumerate(wanted)]
    pipeline = bright(batch=batch, workers=workers)
    records = pipeline(images)
    assert [r.index for r in records] == list(range(10))
    assert [r.source for r in records] == [f"frame {k}" for k in range(10)]
    assert boxes_of(records) == [[[float(c) for c in box]] for box in wanted]
    assert [r.size for r in records] == [image.shape[:2] for image in images]
    assert pipeline.summary.pictures == pipeline.summary.found == 10
    assert all(r.image is None and r.prepared is None and r.outputs is None for r in records)
    assert set(records[0].seconds) == {"decode", "prepare", "model", "decide"}


@pytest.mark.parametrize("batch", [1, 4])
def test_boxes_are_mapped_back_through_a_letterbox(batch):
    images = [picture((8, 16, 40, 48), 64, 128), picture((16, 32, 32, 64), 128, 64)]
    records = bright(64, batch=batch)(images)
    assert boxes_of(records) == [[[8, 16, 40, 48]], [[16, 32, 32, 64]]]


def test_nothing_found_is_an_empty_detection():
    for batch in (1, 2):
        for record in bright(batch=batch)([picture((0, 0, 0, 0))] * 2):
            assert (record.boxes.shape, record.scores.shape) == ((0, 4), (0,))
            assert record.labels.dtype == torch.int64
            assert record.error is None
            assert record.as_dict()["found"] == []


@settings(max_examples=25)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70)), max_size=6),
    batch=st.integers(1, 4),
    size=st.sampled_from([None, 16, (33, 7)]),
)
def test_any_sizes_as_one_at_a_time(sizes, batch, size):
    torch.manual_seed(0)
    images = [torch.randint(0, 256, (h, w, 3), dtype=torch.uint8) for h, w in sizes]
    together = bright(size, batch=batch)(images)
    alone = [bright(size, workers=0)([image])[0] for image in images]
    assert boxes_of(together) == boxes_of(alone)
    assert len(together) == len(images)


def test_memory_is_used_again_and_kept_inputs_are_not_overwritten():
    addresses = []

    def model(x):
        addresses.append(x.data_ptr())
        return x

    images = [picture((k, 0, k + 9, 9)) for k in range(4)]
    pipeline = Pipeline(Prepare(32), model, Bright())
    pipeline(images)
    pipeline(images)
    assert len(set(addresses)) == 1
    kept = Pipeline(Prepare(32), model, Bright(), keep=("prepared", "image", "outputs"))
    records = kept(images)
    for record, image in zip(records, images, strict=True):
        assert record.image is image
        assert torch.equal(record.prepared, Prepare(32)([image]).tensor)
        assert torch.equal(record.outputs, record.prepared)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_channels_last_is_the_same_input_in_another_order(layout):
    image = picture((3, 3, 9, 9), 21, 13)
    plain = Prepare((7, 5), layout=layout)([image]).tensor
    last = Prepare((7, 5), layout=layout, channels_last=True)([image]).tensor
    assert torch.equal(plain, last)
    pixels = last if layout == "nhwc" else last.permute(0, 2, 3, 1)
    assert pixels.is_contiguous()


def test_the_centre_is_cut_out_and_boxes_know_it():
    image = picture((40, 30, 50, 45), 80, 120)
    stage = Prepare(short_side(40), centre=24)
    made = stage([image])
    whole = Prepare((40, 60))([image]).tensor
    assert torch.equal(made.tensor, whole[:, :, 8:32, 18:42])
    assert made.geometry[0].back(torch.tensor([[0.0, 0, 24, 24]])).tolist() == [[36, 16, 84, 64]]


def test_sizes():
    assert multiple_of(32)(1, 33) == (32, 64)
    assert short_side(256)(600, 512) == (300, 256)
    assert short_side(256)(1, 3) == (256, 768)


def test_stages_are_any_callables():
    def halves(images):
        tensor = torch.stack([torch.as_tensor(x)[::2, ::2].permute(2, 0, 1) for x in images]) / 255
        h, w = images[0].shape[:2]
        place = Geometry((h, w), (0, 0, w, h), (0, 0, w // 2, h // 2), (h // 2, w // 2))
        return Prepared(tensor, [place] * len(images))

    [record] = Pipeline(halves, lambda x: x, Bright())([picture((8, 16, 40, 48))])
    assert record.boxes.tolist() == [[8, 16, 40, 48]]
    bare = Pipeline(lambda images: halves(images).tensor, lambda x: x, Bright())
    [record] = bare([picture((8, 16, 40, 48))])
    assert (record.boxes.tolist(), record.geometry) == ([[4, 8, 20, 24]], None)


def test_top_classes_of_a_batch():
    logits = torch.tensor([[0.0, 2, 1], [5, 0, 0]])
    found = TopClasses(2, threshold=0.01)(logits)
    shares = logits.softmax(1)
    assert isinstance(found, Classes)
    assert found.classes.tolist() == [1, 2, 0]
    assert found.images.tolist() == [0, 0, 1]
    torch.testing.assert_close(found.scores, shares[[0, 0, 1], [1, 2, 0]])


def test_no_gradient_is_recorded():
    weight = torch.ones(3, requires_grad=True)
    model = lambda x: (x * weight[:, None, None]).mean((2, 3))  # noqa: E731
    [record] = Pipeline(Prepare(8), model, TopClasses(1), keep=["outputs"])([picture((0, 0, 9, 9))])
    assert not record.outputs.requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch, workers, ahead: wanted 1, 0 and 1 or more, given 0, 2 and None"),
        ({"keep": ("pixels",)}, "keep: wanted some of image, prepared, outputs, given pixels"),
        ({"on_error": "ignore"}, "on_error: wanted record or raise, given 'ignore'"),
        ({"model": 7}, "model: wanted a module, a prepared model or its folder, or a callable"),
        ({"prepare": 7}, "prepare: wanted a callable, given int"),
        ({"decide": None}, "decide: wanted a callable, given NoneType"),
    ],
)
def test_wrong_arguments(change, message):
    arguments = {"prepare": Prepare(8), "model": lambda x: x, "decide": Bright(), **change}
    with pytest.raises(torchmojo.ArgumentError, match=message):
        Pipeline(**arguments)


def test_one_path_is_no_list_of_paths():
    with pytest.raises(torchmojo.ArgumentError, match="given one path"):
        next(bright().stream("a.png"))
    with pytest.raises(torchmojo.ArgumentError, match=r"given one path; pass \['a.png'\]"):
        bright()("a.png")


def test_a_prepared_model_is_opened_by_its_folder(tmp_path):
    with pytest.raises(torchmojo.ModelError, match="absent"):
        Pipeline(Prepare(8), tmp_path / "absent", Bright())


# --- bad files --------------------------------------------------------------------------------


@pytest.fixture
def hostile(tmp_path):
    """Give files that are no whole pictures, among two that are."""
    save(tmp_path / "a.png", picture((8, 16, 40, 48)))
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "b-cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c-text.png").write_text("no picture")
    (tmp_path / "d-empty.png").touch()
    (tmp_path / "e-folder.png").mkdir()
    save(tmp_path / "g-ein Bild ü 画.png", picture((1, 2, 3, 4), 8, 8))
    save(tmp_path / "h-dot.png", np.full((1, 1, 3), 255, np.uint8))
    return [*sorted(tmp_path.iterdir()), tmp_path / "f-absent.png"]


@pytest.mark.parametrize("batch", [1, 3])
def test_bad_files_are_reported_and_the_rest_goes_on(hostile, batch):
    pipeline = bright(batch=batch)
    records = pipeline(hostile)
    errors = {r.source.rpartition("/")[2][0]: r.error for r in records if r.error}
    assert set(errors) == set("bcdef")
    assert errors["b"].startswith("ImageError: ")
    assert "unknown format" in errors["c"]
    assert "unknown format" in errors["d"]
    assert errors["e"] == "IsADirectoryError: Is a directory"
    assert errors["f"] == "FileNotFoundError: No such file or directory"
    good = [r.boxes.tolist() for r in records if not r.error]
    assert good == [[[8, 16, 40, 48]], [[1, 2, 3, 4]], [[0, 0, 1, 1]]]
    assert (pipeline.summary.failed, pipeline.summary.pictures) == (5, 8)


def test_the_first_error_ends_the_run_where_it_is_asked_to(hostile):
    pipeline = bright(on_error="raise")
    with pytest.raises(torchmojo.ImageError, match="b-cut"):
        pipeline(hostile)
    assert pipeline.summary.pictures == 2


@pytest.mark.parametrize("stage", ["prepare", "model", "decide"])
def test_a_stage_that_fails_fails_its_picture_alone(stage):
    def failing(inner):
        def call(x):
            image = x[0] if stage == "prepare" else x
            if any(np.asarray(one).max() > 0 and np.asarray(one).min() > 0 for one in image):
                raise RuntimeError("white pictures are refused")
            return inner(x)

        return call

    stages = {
        "prepare": lambda images: torch.stack([torch.as_tensor(x) for x in images]) / 255,
        "model": lambda x: x,
        "decide": lambda x: Classes(torch.ones(len(x)), *[torch.arange(len(x))] * 2),
    }
    stages[stage] = failing(stages[stage])
    white, black = np.full((8, 8, 3), 255, np.uint8), np.zeros((8, 8, 3), np.uint8)
    images = [black, black, white, black] if stage != "prepare" else [white, black, black]
    records = Pipeline(**stages, batch=4)(images)
    failed = [r.index for r in records if r.error]
    assert failed == [2 if stage != "prepare" else 0]
    assert records[failed[0]].error == "RuntimeError: white pictures are refused"
    assert all(r.count == 1 for r in records if not r.error)


def test_images_of_all_kinds_follow_one_rule(tmp_path):
    gray = (np.arange(37 * 53) % 251).astype(np.uint8).reshape(37, 53)
    path = save(tmp_path / "gray.png", gray)
    kept = Pipeline(Prepare((37, 53)), torch.nn.Identity(), Bright(), keep=["prepared"])
    sources = [gray, gray[:, :, None], torch.from_numpy(gray), Image.fromarray(gray), path]
    records = kept(sources)
    for record in records:
        assert record.prepared.shape == (1, 3, 37, 53)
        assert torch.equal(record.prepared, records[0].prepared)
        assert torch.equal(record.prepared[0, 0], record.prepared[0, 2])


def test_boxes_are_in_the_upright_frame(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the file's left side is up
    path = tmp_path / "turned.png"
    Image.fromarray(picture((8, 16, 40, 48))).save(path, exif=exif)
    [record] = bright(keep=["image"])([path])
    assert record.size == (80, 60)
    # (x, y) of the file is (height - y, x) upright.
    assert record.boxes.tolist() == [[12, 8, 44, 40]]


# --- streams ----------------------------------------------------------------------------------


def names_of_threads():
    return {t.name.split("_")[0] for t in threading.enumerate() if "torchmojo" in t.name}


def test_a_stream_reads_no_further_than_it_may():
    read = []

    def camera():
        for k in range(1000):
            read.append(k)
            yield picture((k, 0, k + 5, 5))

    stream = bright(ahead=3).stream(camera())
    first = next(stream)
    assert first.boxes.tolist() == [[0, 0, 5, 5]]
    assert first.image is not None
    stream.close()
    assert len(read) <= 5
    assert names_of_threads() == set()


def test_frames_come_out_while_the_camera_still_runs():
    frames = queue.Queue()

    def camera():
        while (frame := frames.get()) is not None:
            yield frame

    stream = bright(workers=1).stream(camera())
    for k in range(5):
        frames.put(picture((k, 1, k + 7, 9)))
        assert next(stream).boxes.tolist() == [[k, 1, k + 7, 9]]
    frames.put(None)
    assert list(stream) == []


def test_a_camera_that_fails_is_heard_after_its_frames():
    def camera():
        yield picture((1, 2, 3, 4))
        raise OSError("the plug was pulled")

    for workers in (0, 2):
        stream = bright(workers=workers).stream(camera())
        assert next(stream).boxes.tolist() == [[1, 2, 3, 4]]
        with pytest.raises(OSError, match="the plug was pulled"):
            next(stream)
        assert names_of_threads() == set()


def test_decoding_runs_while_the_model_does(tmp_path):
    """The model waits for the second file to be decoded, which one thread could not do."""
    paths = [save(tmp_path / f"{k}.png", picture((k, 0, k + 5, 5))) for k in range(2)]
    decoded = threading.Event()

    def sources():
        yield paths[0]
        yield paths[1]
        decoded.set()

    def model(x):
        assert decoded.wait(60)
        return x

    records = Pipeline(Prepare(64), model, Bright())(sources())
    assert [r.error for r in records] == [None, None]


def test_work_in_order_whatever_takes_longest():
    turns = [threading.Event() for _ in range(4)]
    turns[3].set()

    def work(k):  # each waits for the one after it
        assert turns[k].wait(60)
        if k:
            turns[k - 1].set()
        return k

    assert list(ordered(range(4), work, workers=4, ahead=4)) == [0, 1, 2, 3]


def test_an_interrupt_ends_the_threads_and_leaves_whole_results(tmp_path):
    program = """
        import sys, threading, numpy as np, torch
        from torchmojo.vision import Pipeline, Prepare, Results, TopClasses

        def endless():
            while True:
                yield np.zeros((8, 8, 3), np.uint8)

        pipeline = Pipeline(Prepare(8), lambda x: x.mean((2, 3)), TopClasses(1))
        try:
            with Results(sys.argv[1], pictures=False) as results:
                for record in pipeline.stream(endless(), results=results):
                    if record.index == 20:
                        print("running", flush=True)
        except KeyboardInterrupt:
            left = [t.name for t in threading.enumerate() if "torchmojo" in t.name]
            print("interrupted", left, flush=True)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), tmp_path / "out"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert output == "interrupted []\n"
    assert child.returncode == 0
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert len(lines) >= 20
    assert all(json.loads(line)["found"] for line in lines)


# --- results ----------------------------------------------------------------------------------


def run_into(folder, sources, seen, **options):
    """Run with results; `seen` gets the number of pictures that reach the model."""

    def model(x):
        seen.extend([0] * len(x))
        return x

    pipeline = Pipeline(Prepare(lambda h, w: (h, w)), model, Bright())
    with Results(folder, **options) as results:
        records = pipeline(sources, results=results)
        return records, results.lines()


def test_lines_and_pictures_are_written(tmp_path):
    path = save(tmp_path / "a.png", picture((8, 16, 40, 48)))
    records, lines = run_into(tmp_path / "out", [path], [])
    assert records[0].picture == "a.jpg"
    assert lines[0]["found"] == [{"label": 0, "score": 1.0, "box": [8.0, 16.0, 40.0, 48.0]}]
    assert (lines[0]["source"], lines[0]["height"], lines[0]["width"]) == (str(path), 60, 80)
    with Image.open(tmp_path / "out" / "a.jpg") as drawn:
        assert drawn.size == (80, 60)
        assert np.asarray(drawn).std() > 10
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.jpg", "results.jsonl"]


def test_what_is_done_and_unchanged_is_skipped(tmp_path):
    a, b, c = (save(tmp_path / f"{n}.png", picture((8, 16, 40, 48))) for n in "abc")
    out, seen = tmp_path / "out", []
    run_into(out, [a, b], seen)
    assert len(seen) == 2
    records, lines = run_into(out, [a, b, c], seen)
    assert len(seen) == 3
    assert [r.skipped for r in records] == [True, True, False]
    assert [r.picture for r in records] == ["a.jpg", "b.jpg", "c.jpg"]
    save(b, picture((0, 0, 7, 9)))
    os.utime(b, ns=(1, 1))
    records, lines = run_into(out, [a, b, c], seen)
    assert len(seen) == 4
    assert sorted(line["source"] for line in lines) == [str(a), str(b), str(c)]
    [changed] = [line for line in lines if line["source"] == str(b)]
    assert changed["found"][0]["box"] == [0, 0, 7, 9]


@pytest.mark.parametrize("reason", ["settings", "picture", "error"])
def test_what_no_longer_holds_is_done_again(tmp_path, reason):
    path = save(tmp_path / "a.png", picture((8, 16, 40, 48)))
    out, seen = tmp_path / "out", []
    if reason == "error":
        whole = path.read_bytes()
        path.write_bytes(whole[:90])
        run_into(out, [path], seen)
        path.write_bytes(whole)
    else:
        run_into(out, [path], seen, settings="before")
    if reason == "picture":
        (out / "a.jpg").unlink()
    _, lines = run_into(out, [path], seen, settings="now" if reason == "settings" else "before")
    assert len(seen) == (1 if reason == "error" else 2)
    assert len(lines) == 1
    assert "error" not in lines[0]


def test_a_line_that_was_cut_off_is_done_again(tmp_path):
    paths = [save(tmp_path / f"{n}.png", picture((8, 16, 40, 48))) for n in "ab"]
    out, seen = tmp_path / "out", []
    run_into(out, paths, seen)
    file = out / "results.jsonl"
    file.write_bytes(file.read_bytes()[:-7])
    records, lines = run_into(out, paths, seen)
    assert [r.skipped for r in records] == [True, False]
    assert [line["source"] for line in lines] == [str(p) for p in paths]


def test_equal_names_get_pictures_of_their_own(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    paths = [save(tmp_path / n / "a.png", picture((8, 16, 40, 48))) for n in ("one", "two")]
    paths.append(save(tmp_path / "one" / "a.bmp", picture((1, 1, 9, 9))))
    out = tmp_path / "out"
    records, _ = run_into(out, paths[:2], [])
    assert [r.picture for r in records] == ["a.jpg", "a-2.jpg"]
    records, _ = run_into(out, [paths[2]], [])
    assert records[0].picture == "a-3.jpg"
    assert len(list(out.glob("*.jpg"))) == 3


def test_names_that_are_long_or_no_text(tmp_path):
    names = [b"\xff\xfe.png", b"x" * 240 + b".png", "画像 ü.png".encode()]
    paths = [os.path.join(os.fsencode(tmp_path), name) for name in names]  # noqa: PTH118
    for path in paths:
        with open(path, "wb") as file:  # noqa: PTH123
            Image.fromarray(picture((8, 16, 40, 48))).save(file, "png")
    records, lines = run_into(tmp_path / "out", [os.fsdecode(p) for p in paths], [])
    assert [r.error for r in records] == [None] * 3
    assert all((tmp_path / "out" / r.picture).is_file() for r in records)
    assert [os.fsencode(line["source"]) for line in lines] == paths


def test_another_file_in_the_place_of_results_is_left_alone(tmp_path):
    (tmp_path / "results.jsonl").write_text("precious notes\n")
    with pytest.raises(torchmojo.ArgumentError, match=r"given line 1: .*precious notes"):
        Results(tmp_path)
    assert (tmp_path / "results.jsonl").read_text() == "precious notes\n"


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(OSError, match="out"):
        Results(tmp_path / "out")


def test_a_picture_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(self, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    path = save(tmp_path / "a.png", picture((8, 16, 40, 48)))
    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match="No space left"):
        run_into(tmp_path / "out", [path], [])
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["results.jsonl"]
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == b""
    assert names_of_threads() == set()


@pytest.mark.parametrize(
    "boxes",
    [
        [[5.0, 5, 1, 1]],
        [[float("nan")] * 4],
        [[0.0, 0, float("inf"), 9]],
        [[-50.0, -50, 900, 900]],
        [],
    ],
)
def test_any_box_can_be_drawn(boxes):
    [record] = bright(keep=["image"])([picture((0, 0, 0, 0))[:, :, :1]])
    record.boxes = torch.tensor(boxes).reshape(-1, 4)
    record.scores = torch.ones(len(boxes))
    record.labels = torch.arange(len(boxes))
    before = record.image.copy()
    drawn = annotate(record, names=["face"])
    assert (drawn.mode, drawn.size) == ("RGB", (80, 60))
    assert (record.image == before).all()


def test_colours_are_drawn_as_they_are():
    red = np.zeros((20, 30, 3), np.uint8)
    red[..., 0] = 200
    stage = lambda x: torch.zeros(len(x), 3, 8, 8)  # noqa: E731
    for image, source, channels in (
        (red, "rgb", "last"),
        (red[..., ::-1], "bgr", "last"),
        (np.ascontiguousarray(red[..., ::-1]), "bgr", "last"),
        (torch.from_numpy(red).permute(2, 0, 1), "rgb", "first"),
        (np.dstack([red, red[..., 1]]), "rgba", "last"),
    ):
        [record] = Pipeline(stage, torch.nn.Identity(), Bright(), keep=["image"])([image])
        drawn = np.asarray(annotate(record, source=source, channels=channels))
        assert (drawn == red).all()


def test_the_error_that_ends_a_run_is_the_first_of_a_batch(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_text("no picture")
    good = save(tmp_path / "0.png", picture((8, 16, 40, 48)))
    pipeline = bright(batch=4, on_error="raise")
    with pytest.raises(FileNotFoundError):
        pipeline([good, tmp_path / "absent.png", tmp_path / "a.png"])
    assert pipeline.summary.pictures == 2


def test_a_line_that_the_disk_takes_in_parts_is_whole(tmp_path):
    class Slow:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            return self.file.write(data[:7])

        def close(self):
            self.file.close()

    path = save(tmp_path / "a.png", picture((8, 16, 40, 48)))
    with Results(tmp_path / "out", pictures=False) as results:
        results._file = Slow(results._file)
        bright()([path], results=results)
        assert [line["source"] for line in results.lines()] == [str(path)]
