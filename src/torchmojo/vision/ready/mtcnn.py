"""MTCNN: faces with five landmarks, by three small nets one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torchmojo.bridge.copy.policy import fallback
from torchmojo.models.weights.open import open_weights
from torchmojo.vision.detections import Detections, decode_mtcnn
from torchmojo.vision.pipeline.pipeline import Pipeline
from torchmojo.vision.pipeline.stages import height_and_width
from torchmojo.vision.prepare import prepare
from torchmojo.vision.ready.assets import Asset
from torchmojo.vision.suppress import batched_nms, nms

__all__ = ["WEIGHTS", "Cascade", "mtcnn"]

WEIGHTS = {
    name: Asset("facenet-pytorch", "2.6.0", f"facenet_pytorch/data/{name}.pt", sha256)
    for name, sha256 in (
        ("pnet", "a2a71925e0b9996a42f63e47efc1ca19043e69558b5c523b978d611dfae49c8f"),
        ("rnet", "bbb937de72efc9ef83b186c49f5f558467a1d7e3453a8ece0d71a886633f6a86"),
        ("onet", "165bfbe42940416ccfb977545cf0e976d5bf321f67083ae2aaaa5c764280118d"),
    )
}

_LEVELS: dict[str, Any] = {"resize": "area", "scale": 1.0, "mean": 127.5, "std": 128.0}


class _Net(nn.Module):  # type: ignore[misc, unused-ignore]
    """Convolutions with PReLU and pooling, then heads; named as facenet-pytorch names them."""

    def __init__(self, channels: Sequence[int], sizes: Sequence[int], pools: Sequence[int]) -> None:
        super().__init__()
        self.pools = pools
        for k, (i, o, size) in enumerate(zip((3, *channels), channels, sizes, strict=False), 1):
            setattr(self, f"conv{k}", nn.Conv2d(i, o, size))
            setattr(self, f"prelu{k}", nn.PReLU(o))

    def body(self, x: torch.Tensor) -> torch.Tensor:
        for k, pool in enumerate(self.pools, 1):
            x = getattr(self, f"prelu{k}")(getattr(self, f"conv{k}")(x))
            if pool:
                x = nn.functional.max_pool2d(x, pool, 2, ceil_mode=True)
        return x


class _PNet(_Net):
    def __init__(self) -> None:
        super().__init__((10, 16, 32), (3, 3, 3), (2, 0, 0))
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.body(x)
        return self.conv4_2(x), self.conv4_1(x).softmax(1)[:, 1]


class _RNet(_Net):
    def __init__(self) -> None:
        super().__init__((28, 48, 64), (3, 3, 2), (3, 3, 0))
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.body(x).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu4(self.dense4(x))
        return self.dense5_2(x), self.dense5_1(x).softmax(1)[:, 1]


class _ONet(_Net):
    def __init__(self) -> None:
        super().__init__((32, 64, 64, 128), (3, 3, 3, 2), (3, 3, 2, 0))
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2 = nn.Linear(256, 2), nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.body(x).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu5(self.dense5(x))
        return self.dense6_2(x), self.dense6_1(x).softmax(1)[:, 1], self.dense6_3(x)


def _bound(module: nn.Module, name: str) -> nn.Module:
    """Gives a net its weights, read from their file."""
    asset = WEIGHTS[name]
    path = asset.find("mtcnn", digest=False)
    # In these files most tensors lie at odd places, so that they are copied: 2 MB in all.
    with (
        fallback("copy"),
        open_weights(path, sha256=asset.sha256, align=4, progress=False) as weights,
    ):
        weights.bind(module)
    return module.eval().requires_grad_(False)


class Cascade:
    """The three nets: pictures of any size to faces, before the last suppression.

    Attributes:
        least: Side of the smallest face, in pixels.
        thresholds: What the scores of the three nets must exceed.
        factor: By which the pictures that the first net sees shrink.
    """

    def __init__(
        self,
        least: int = 20,
        thresholds: Sequence[float] = (0.6, 0.7, 0.7),
        factor: float = 0.709,
    ) -> None:
        """Maps the weights.

        Args:
            least: See the attribute.
            thresholds: See the attribute.
            factor: See the attribute.

        Raises:
            ModelError: The package with the weights is not installed, or another release.
            WeightsError: A file is another one.
        """
        self.least, self.thresholds, self.factor = least, thresholds, factor
        with torch.device("meta"):
            nets = _PNet(), _RNet(), _ONet()
        self.pnet, self.rnet, self.onet = map(_bound, nets, ("pnet", "rnet", "onet"))

    def __call__(self, images: Sequence[Any]) -> Detections:
        """Looks for faces.

        Args:
            images: uint8 ``[h, w, c]``, each of its own size.

        Returns:
            Faces in pixels of the images, each perhaps several times.
        """
        found = [self._look(image) for image in images]
        counts = torch.tensor([len(boxes) for boxes, _, _ in found])
        boxes, scores, marks = (torch.cat(parts) for parts in zip(*found, strict=True))
        places = torch.repeat_interleave(torch.arange(len(images)), counts)
        return Detections(boxes, scores, torch.zeros_like(places), places, marks)

    def _look(self, image: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        size = height_and_width(image, {})
        boxes = self._windows(image, size)
        boxes, scores, shifts, _ = self._refine(image, boxes, self.rnet, 24, self.thresholds[1])
        kept = nms(boxes, scores, 0.7)
        boxes = _square(_shifted(boxes[kept], shifts[kept]))
        boxes, scores, shifts, marks = self._refine(image, boxes, self.onet, 48, self.thresholds[2])
        # Five times across, then five times down, in parts of the window.
        sides = (boxes[:, 2:] - boxes[:, :2] + 1)[:, None]
        points = marks.view(-1, 2, 5).transpose(1, 2) * sides + boxes[:, None, :2] - 1
        return _shifted(boxes, shifts), scores, points

    def _windows(self, image: Any, size: tuple[int, int]) -> torch.Tensor:
        """Looks at smaller and smaller pictures with the first net."""
        found = [(torch.empty(0, 4), torch.empty(0), torch.empty(0, 4))]
        scale = 12 / self.least
        while min(size) * scale >= 12:
            small = (int(size[0] * scale + 1), int(size[1] * scale + 1))
            shifts, shares = self.pnet(prepare(image, small, **_LEVELS).tensor)
            windows, shift = decode_mtcnn(
                shares, shifts, score_threshold=self.thresholds[0], scale=scale
            )
            kept = nms(windows.boxes, windows.scores, 0.5)
            found.append((windows.boxes[kept], windows.scores[kept], shift[kept]))
            scale *= self.factor
        boxes, scores, shift = (torch.cat(parts) for parts in zip(*found, strict=True))
        kept = nms(boxes, scores, 0.7)
        return _square(_shifted(boxes[kept], shift[kept], more=0))

    def _refine(
        self, image: Any, boxes: torch.Tensor, net: nn.Module, side: int, threshold: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cuts windows out, in one pass each, and keeps those that a net takes for faces."""
        height, width = height_and_width(image, {})
        corners = boxes.trunc().int()
        low = corners[:, :2].clamp(min=1) - 1
        high = torch.minimum(corners[:, 2:], torch.tensor([width, height], dtype=torch.int32))
        inside = (high > low).all(1)
        boxes = boxes[inside]
        if not len(boxes):
            return boxes, boxes[:, 0], boxes, torch.empty(0, 10)
        cuts = torch.cat((low, high), 1)[inside].tolist()
        shifts, scores, *marks = net(
            prepare([image] * len(cuts), side, crop=cuts, **_LEVELS).tensor
        )
        good = scores > threshold
        points = marks[0][good] if marks else torch.empty(0, 10)
        return boxes[good], scores[good], shifts[good], points


def _shifted(boxes: torch.Tensor, shifts: torch.Tensor, more: int = 1) -> torch.Tensor:
    """Moves corners by parts of the sides."""
    sides = boxes[:, 2:] - boxes[:, :2] + more
    return boxes + shifts * sides.repeat(1, 2)


def _square(boxes: torch.Tensor) -> torch.Tensor:
    """Widens boxes to squares around their middles."""
    sides = boxes[:, 2:] - boxes[:, :2]
    longest = sides.amax(1, keepdim=True) if len(boxes) else sides[:, :1]
    corner = boxes[:, :2] + sides * 0.5 - longest * 0.5
    return torch.cat((corner, corner + longest), 1)


@dataclass(frozen=True, slots=True)
class _Least:
    """Drops faces that are covered by a better one, by their share of the smaller of the two."""

    iou: float

    def __call__(self, found: Detections) -> Detections:
        kept = batched_nms(found.boxes, found.scores, found.images, self.iou, overlap="smaller")
        return Detections(*(None if part is None else part[kept] for part in found))


class _AsTheyLie:
    """The stage of a model that prepares for itself."""

    def __call__(self, images: list[Any]) -> list[Any]:
        return images


def mtcnn(
    *,
    least: int = 20,
    thresholds: Sequence[float] = (0.6, 0.7, 0.7),
    factor: float = 0.709,
    **options: Any,
) -> Pipeline:
    """Gives a pipeline that finds faces with MTCNN, by Zhang and others (2016).

    Args:
        least: Side of the smallest face, in pixels.
        thresholds: What the scores of the three nets must exceed.
        factor: By which the pictures that the first net sees shrink.
        **options: Of ``Pipeline``: batch, workers, ahead, keep, on_error.

    Raises:
        ModelError: The package with the weights is not installed, or another release.
        WeightsError: A file is another one.

    Example:
        >>> from torchmojo.vision import mtcnn                  # doctest: +SKIP
        >>> [faces] = mtcnn()(["astronaut.png"])                # doctest: +SKIP
        >>> faces.boxes                                         # doctest: +SKIP
        tensor([[181.1, 62.2, 267.7, 172.1]])
    """
    pipeline = Pipeline(
        _AsTheyLie(),
        Cascade(least, thresholds, factor),
        _Least(0.7),
        settings=f"mtcnn {least=} thresholds={list(thresholds)} {factor=}",
        **options,
    )
    pipeline.recipe = (mtcnn, dict(least=least, thresholds=thresholds, factor=factor, **options))
    return pipeline
