"""Box formats and the way back from the network's picture to the original one. Every function returns new tensors."""

import torch
from torch import Tensor


def xywh_to_xyxy(boxes: Tensor) -> Tensor:
    """Turns centre x, centre y, width, height (last dimension, 4) into left, top, right, bottom; any unit."""
    centre, half = boxes[..., :2], boxes[..., 2:4] / 2
    return torch.cat((centre - half, centre + half), -1)


def xyxy_to_xywh(boxes: Tensor) -> Tensor:
    """Turns left, top, right, bottom (last dimension, 4) into centre x, centre y, width, height; any unit."""
    low, high = boxes[..., :2], boxes[..., 2:4]
    return torch.cat(((low + high) / 2, high - low), -1)


def clip_boxes(boxes: Tensor, picture_hw: tuple[int, int]) -> Tensor:
    """Moves corners that lie outside a picture onto its border.

    Args:
        boxes: (n, 4) left, top, right, bottom in pixels.
        picture_hw: height and width of the picture in pixels.
    """
    height, width = picture_hw
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return torch.stack((x[..., 0], y[..., 0], x[..., 1], y[..., 1]), -1)


def scale_boxes(
    boxes: Tensor,
    network_hw: tuple[int, int],
    original_hw: tuple[int, int],
    ratio_hw: tuple[float, float] | None = None,
    pad_wh: tuple[float, float] | None = None,
) -> Tensor:
    """Moves boxes from the letterboxed picture that the network saw to the original picture, clipped to it.

    Args:
        boxes: (n, 4) left, top, right, bottom in pixels of the network's picture.
        network_hw: height and width of the network's picture.
        original_hw: height and width of the original picture.
        ratio_hw: how much height and width were scaled; both this and `pad_wh` are worked out from a centred letterbox
            of equal scale when one of them is None.
        pad_wh: border at the left and at the top in pixels of the network's picture.
    """
    if ratio_hw is None or pad_wh is None:
        ratio = min(network_hw[0] / original_hw[0], network_hw[1] / original_hw[1])
        ratio_hw = (ratio, ratio)
        pad_wh = ((network_hw[1] - original_hw[1] * ratio) / 2, (network_hw[0] - original_hw[0] * ratio) / 2)
    x = (boxes[..., 0::2] - pad_wh[0]) / ratio_hw[1]
    y = (boxes[..., 1::2] - pad_wh[1]) / ratio_hw[0]
    return clip_boxes(torch.stack((x[..., 0], y[..., 0], x[..., 1], y[..., 1]), -1), original_hw)
