"""Non-maximum suppression of whole batches on the device that holds the predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from yolov9.ops.boxes import xywh_to_xyxy
from yolov9.ops.suppress import suppress

MAX_CANDIDATES = 30_000
"""Most candidates of a picture that take part, best scores first; the limit that YOLOv9's published scores use."""
SCORES_PER_PASS = 2**23
"""Scores looked at together; bounds the memory when nearly every score passes a low threshold (24 bytes each)."""


@dataclass(frozen=True)
class Candidates:
    """Boxes that passed the threshold, best score first, padded to the fullest picture."""

    boxes: Tensor
    """(B, K, 4) left, top, right, bottom; zeros behind the last candidate of a picture."""
    scores: Tensor
    """(B, K), falling; equal scores stand in the order of anchor, then class."""
    classes: Tensor
    """(B, K) int64; -1 behind the last candidate."""


def nms(
    prediction: Tensor,
    conf: float = 0.25,
    iou: float = 0.45,
    classes: Sequence[int] | None = None,
    agnostic: bool = False,
    multi_label: bool = False,
    max_det: int = 300,
) -> list[Tensor]:
    """Picks the final detections of each picture; the same rows in the same order on every device.

    A box is dropped when a better one of the same class overlaps it by more than `iou`. Classes are compared as
    numbers, never by shifting boxes apart, so coordinates keep their precision; no time limit applies.

    Args:
        prediction: (B, 4 + classes, N): centre x, centre y, width, height, then class scores.
        conf: scores must be greater than this.
        iou: overlap that two kept boxes may just have.
        classes: class numbers to keep; None keeps all.
        agnostic: boxes of different classes suppress each other too.
        multi_label: a box may be reported once for every class above the threshold, not for its best class only.
        max_det: most detections of a picture.

    Returns:
        One float32 tensor (n, 6) for each picture, best score first: left, top, right, bottom, score, class.

    Raises:
        ValueError: a threshold outside 0 to 1, or `max_det` below 1.
    """
    if not (0 <= conf <= 1 and 0 <= iou <= 1):
        raise ValueError(f"conf {conf} and iou {iou} must lie between 0 and 1")
    if max_det < 1:
        raise ValueError(f"max_det {max_det} must be at least 1")
    found: list[Tensor] = []
    for part in _parts(prediction):
        candidates = _candidates(part.float(), conf, classes, multi_label)
        groups = torch.zeros_like(candidates.classes) if agnostic else candidates.classes
        chosen, count = suppress(candidates.boxes, groups.where(candidates.classes >= 0, -1), iou, max_det)
        rows = torch.cat((candidates.boxes, candidates.scores[..., None], candidates.classes[..., None].float()), -1)
        rows = rows.gather(1, chosen[..., None].expand(-1, -1, 6))
        found += [picture[:n] for picture, n in zip(rows.unbind(0), count.tolist(), strict=True)]
    return found


def _parts(prediction: Tensor) -> Iterator[Tensor]:
    pictures, channels, anchors = prediction.shape
    per_pass = max(1, SCORES_PER_PASS // max(1, (channels - 4) * anchors))
    for start in range(0, pictures, per_pass):
        yield prediction[start : start + per_pass]


def _candidates(prediction: Tensor, conf: float, classes: Sequence[int] | None, multi_label: bool) -> Candidates:
    pictures, channels, _ = prediction.shape
    scores = prediction[:, 4:].transpose(1, 2)
    wanted = None
    if classes is not None:
        allowed = set(classes)
        wanted = torch.tensor([number in allowed for number in range(channels - 4)], device=prediction.device)
    if multi_label and channels > 5:
        passing = _best_of_many(scores, scores > conf if wanted is None else (scores > conf) & wanted)
        picture, anchor, label = passing.nonzero(as_tuple=True)
        score = scores[picture, anchor, label]
    else:
        best, best_label = scores.max(-1)
        passing = best > conf if wanted is None else (best > conf) & wanted[best_label]
        picture, anchor = passing.nonzero(as_tuple=True)
        score, label = best[picture, anchor], best_label[picture, anchor]
    counts = passing.flatten(1).sum(1)
    # Two stable sorts: by picture, within it by falling score, within equal scores as found.
    order = score.argsort(descending=True, stable=True)
    order = order[picture[order].argsort(stable=True)]
    picture, anchor, score, label = picture[order], anchor[order], score[order], label[order]
    rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[picture]
    width = min(MAX_CANDIDATES, int(counts.max())) if pictures else 0
    place = picture * (width + 1) + rank.clamp(max=width)  # what is beyond the limit ends in a column that is cut off
    boxes = xywh_to_xyxy(prediction[picture, :4, anchor])
    return Candidates(
        boxes=_padded(boxes, place, pictures, width, 0),
        scores=_padded(score, place, pictures, width, 0),
        classes=_padded(label, place, pictures, width, -1),
    )


def _best_of_many(scores: Tensor, passing: Tensor) -> Tensor:
    """Where far too many scores pass, as early in training: only those that can be among the best `MAX_CANDIDATES`."""
    counts = passing.flatten(1).sum(1)
    if scores.numel() == 0 or int(counts.max()) <= MAX_CANDIDATES:
        return passing
    eligible = scores.masked_fill(~passing, -1)
    lowest = eligible.flatten(1).topk(MAX_CANDIDATES, sorted=False).values.amin(1)
    return passing & (scores >= lowest[:, None, None])


def _padded(values: Tensor, place: Tensor, pictures: int, width: int, fill: int) -> Tensor:
    table = values.new_full((pictures * (width + 1), *values.shape[1:]), fill)
    table[place] = values
    return table.view(pictures, width + 1, *values.shape[1:])[:, :width]
