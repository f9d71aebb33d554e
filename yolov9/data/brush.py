"""How pixels get onto a sample: resampled along the axes, and with their colours changed. With OpenCV here, in C in
`compiled_brush`, which is several times as fast."""

from typing import NamedTuple, Protocol

import cv2
import numpy as np

from yolov9.data.augment import Picture, bgr_to_rgb_with_hsv, mixup
from yolov9.data.geometry import Floats
from yolov9.data.images import halve


class Line(NamedTuple):
    """Where the pixels along one axis of a drawing come from."""

    start: float
    """Place in the source of the first pixel's centre, counted from the centre of the source's first pixel."""
    step: float
    """From one pixel to the next; negative when the drawing is mirrored."""


class Brush(Protocol):
    """Draws."""

    def recolour(self, picture: Picture, out: Picture, factors: Floats | None) -> None:
        """As `bgr_to_rgb_with_hsv`."""

    def mix(self, first: Picture, second: Picture, ratio: float, out: Picture, factors: Floats | None) -> None:
        """`mixup`, which may write to `first`, then `recolour`."""

    def resample(
        self, source: Picture, x: Line, y: Line, out: Picture, factors: Floats | None, *, colours_first: bool
    ) -> None:
        """Fills a picture from another one, bilinearly; beyond the source its edge is repeated.

        Args:
            source: BGR.
            x, y: which part of it, and how large.
            out: written.
            factors: change of colours as from `hsv_factors`, after which `out` is RGB; None for none, it is BGR then.
            colours_first: change the colours of the source instead of those of the result.
        """

    def halve(self, picture: Picture) -> Picture:
        """As `images.halve`."""


class OpenCVBrush:
    """Draws with OpenCV."""

    def recolour(self, picture: Picture, out: Picture, factors: Floats | None) -> None:
        """As `Brush` says."""
        bgr_to_rgb_with_hsv(picture, out, factors)

    def mix(self, first: Picture, second: Picture, ratio: float, out: Picture, factors: Floats | None) -> None:
        """As `Brush` says."""
        mixup(first, second, ratio)
        bgr_to_rgb_with_hsv(first, out, factors)

    def resample(
        self, source: Picture, x: Line, y: Line, out: Picture, factors: Floats | None, *, colours_first: bool
    ) -> None:
        """As `Brush` says; places are rounded to 1/32 of a source pixel."""
        if factors is not None and colours_first:
            changed = np.empty(source.shape, np.uint8)
            bgr_to_rgb_with_hsv(source, changed, factors)
            source = changed
        back = np.array(((x.step, 0.0, x.start), (0.0, y.step, y.start)))
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        size = out.shape[1], out.shape[0]
        drawn = np.asarray(
            cv2.warpAffine(source, back, size, flags=flags, borderMode=cv2.BORDER_REPLICATE), dtype=np.uint8
        )
        if factors is None or colours_first:
            out[...] = drawn
        else:
            bgr_to_rgb_with_hsv(drawn, out, factors)

    def halve(self, picture: Picture) -> Picture:
        """As `Brush` says."""
        return halve(picture)


OPENCV = OpenCVBrush()
