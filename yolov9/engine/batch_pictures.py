"""Pictures of a batch with its boxes: what the network is shown, what the labels say, what it answers."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.engine.draw import draw_boxes
from yolov9.engine.fonts import readable_names

MOST_TILES = 16
"""Pictures of a batch that are shown."""

LONGEST_SIDE_PX = 1920
"""The whole mosaic is not larger than this."""

SMALLEST_TILE_PX = 320
"""Smaller pictures are enlarged to this longer side: names of a readable size would hide what they are about."""

JPEG_QUALITY = 92
SHOWN_FROM = 0.25
"""Score above which a detection is drawn."""
GRID_PX = 2
GRID_GREY = 255


def draw_targets(images: NDArray[np.uint8], targets: NDArray[np.float32], names: Sequence[str], picture: Path) -> Path:
    """Draws a batch with the boxes of its labels (train_batch*.jpg, val_batch*_labels.jpg).

    Args:
        images: (B, H, W, 3) RGB.
        targets: (n, 6) image in batch, class, centre x, centre y, width, height, normalised to 0..1.
        names: class names.
        picture: JPEG file to write.
    """
    height, width = images.shape[1:3]
    centre, half = targets[:, 2:4], targets[:, 4:6] / 2
    boxes = np.concatenate([centre - half, centre + half], 1) * np.array([width, height, width, height], np.float32)
    rows = [np.concatenate([boxes, targets[:, 1:2]], 1)[targets[:, 0] == index] for index in range(len(images))]
    return _draw(images, rows, names, picture)


def draw_predictions(
    images: NDArray[np.uint8],
    detections: Sequence[NDArray[np.float32]],
    names: Sequence[str],
    picture: Path,
) -> Path:
    """Draws a batch with the boxes of the model (val_batch*_pred.jpg).

    Args:
        images: (B, H, W, 3) RGB.
        detections: per image (n, 6) x1, y1, x2, y2, score, class in pixels of the image given.
        names: class names.
        picture: JPEG file to write.
    """
    kept = [rows[rows[:, 4] > SHOWN_FROM] for rows in detections]
    return _draw(images, [rows[:, [0, 1, 2, 3, 5, 4]] for rows in kept], names, picture)


def _draw(images: NDArray[np.uint8], rows: Sequence[NDArray[np.float32]], names: Sequence[str], picture: Path) -> Path:
    """Rows per image: x1, y1, x2, y2, class and, where there is one, the score."""
    shown = readable_names(names)
    count = min(len(images), MOST_TILES)
    columns = int(np.ceil(np.sqrt(count)))
    lines = int(np.ceil(count / columns))
    height, width = images.shape[1:3]
    enlarged = max(1.0, SMALLEST_TILE_PX / max(height, width))
    scale = min(enlarged, LONGEST_SIDE_PX / (columns * width), LONGEST_SIDE_PX / (lines * height))
    way = cv2.INTER_AREA if scale <= 1 else cv2.INTER_LINEAR
    tile_h, tile_w = max(1, round(height * scale)), max(1, round(width * scale))
    canvas = np.full((lines * tile_h, columns * tile_w, 3), GRID_GREY, np.uint8)
    for index in range(count):
        tile = cv2.resize(images[index][:, :, ::-1], (tile_w, tile_h), interpolation=way)
        boxes = rows[index][:, :4] * np.array([tile_w / width, tile_h / height] * 2, np.float32)
        labels = [_label(shown, row) for row in rows[index]]
        draw_boxes(tile, boxes, rows[index][:, 4].astype(np.int64), labels)
        y, x = index // columns * tile_h, index % columns * tile_w
        canvas[y : y + tile_h - GRID_PX, x : x + tile_w - GRID_PX] = tile[: tile_h - GRID_PX, : tile_w - GRID_PX]
    ok, data = cv2.imencode(".jpg", canvas, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not ok:
        raise OSError(f"cannot encode {picture}")
    picture.write_bytes(data.tobytes())
    return picture


def _label(names: Sequence[str], row: NDArray[np.float32]) -> str:
    number = int(row[4])
    name = names[number] if 0 <= number < len(names) else str(number)
    return f"{name} {row[5]:.2f}" if len(row) > 5 else name
