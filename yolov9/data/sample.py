"""One finished sample: a pure function of (seed, epoch, position), the data set and the settings.

Whoever computes it, in whatever process, after whatever happened before, gets the same pixels and labels. No torch
here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from yolov9.config.loader_memory import MIXED_SAMPLES, MOSAIC_PICTURES
from yolov9.data.augment import Picture, bgr_to_rgb_with_hsv, flip_labels, hsv_factors, mixup_ratio
from yolov9.data.brush import OPENCV, Brush
from yolov9.data.geometry import Floats, PerspectiveLimits
from yolov9.data.images import ImageError
from yolov9.data.letterbox import BORDER_GREY, letterbox
from yolov9.data.objects import to_labels
from yolov9.data.order import PictureOrder, sample_generator
from yolov9.data.partners import Partners, Sequence
from yolov9.data.reader import PictureReader
from yolov9.data.scene import Labelled, Scene, letterbox_objects, mosaic_scene, paint, scene_boxes, single_scene
from yolov9.data.tiles import Drawable, flip_matrix

MAX_SUBSTITUTES = 16
"""Pictures of one sample that may turn out unreadable and be replaced before the sample is given up."""


class LabelledPictures(Protocol):
    """The part of a data-set index that samples need."""

    def __len__(self) -> int: ...

    def labels_of(self, number: int, /) -> NDArray[np.float32]:
        """(n, 5) class, cx, cy, w, h of a picture, normalised."""

    def segments_of(self, number: int, /) -> list[NDArray[np.float32]]:
        """n outlines (k, 2), normalised; (0, 2) for an object without one."""


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """What a sample depends on besides the data set; plain values, so that it can be sent to workers as JSON."""

    imgsz: int
    """Length of the longer side of pictures, in pixels."""
    seed: int
    augment: bool
    """Training; otherwise pictures are only scaled and padded."""
    shuffle: bool
    """Positions are in random order; otherwise in that of `order`, or of the index."""
    close_mosaic_from: int | None = None
    """First epoch without mosaic and mixup."""
    perspective: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    """`PerspectiveLimits`."""
    hsv: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Largest relative changes of hue, saturation and value."""
    flipud: float = 0.0
    fliplr: float = 0.0
    mosaic: float = 0.0
    mixup: float = 0.0
    copy_paste: float = 0.0
    mosaic_window: int = 0
    """Partners come from so many samples made shortly before; 0: from all pictures."""
    samples: int = 1
    """Samples of this process in an epoch."""
    rank: int = 0
    world: int = 1

    def mosaic_share(self, epoch: int) -> float:
        """Returns the probability of a mosaic in an epoch. It is the epoch that decides, not when it is asked."""
        closed = self.close_mosaic_from is not None and epoch >= self.close_mosaic_from
        return 0.0 if closed or not self.augment else self.mosaic


class Fit(NamedTuple):
    """How a validation picture lies in its sample."""

    original_hw: tuple[int, int] = (0, 0)
    """Size of the upright file."""
    ratio_hw: tuple[float, float] = (1.0, 1.0)
    """Scale from file to sample."""
    pad_wh: tuple[float, float] = (0.0, 0.0)
    """Border left and above in pixels; halves occur."""


NO_FIT = Fit()
"""A training sample has none."""


@dataclass
class Sample:
    """What belongs to the pixels that were written."""

    picture: int
    """Number of the (first) picture."""
    labels: NDArray[np.float32]
    """(n, 5) class, cx, cy, w, h, normalised to the sample."""
    mosaic: bool = False
    """Four pictures instead of one."""
    fit: Fit = NO_FIT
    failures: list[tuple[int, str]] = field(default_factory=list)
    """Pictures that could not be read, and why; others stand in for them."""


class View(NamedTuple):
    """What a training sample shows. Its pixels follow from this, whoever draws them."""

    scenes: list[Scene]
    """One, or two that are blended."""
    ratio: float
    """Share of the first one."""
    flip: Floats
    """(3, 3), applied last."""
    factors: Floats | None
    """As from `hsv_factors`; None for no change of colours."""
    shape_hw: tuple[int, int]


class UnreadableError(Exception):
    """A picture of a sample cannot be read, so another one has to stand in."""

    def __init__(self, number: int, error: ImageError) -> None:
        super().__init__(number)
        self.number = number
        self.error = error


class SampleMaker:
    """Makes samples of one data set.

    Args:
        settings: see there.
        index: labels.
        reader: pixels and sizes of the same pictures.
        order: (N,) picture at each position when positions are not shuffled; None for the order of the index.
        brush: draws.
    """

    def __init__(
        self,
        settings: SampleSettings,
        index: LabelledPictures,
        reader: PictureReader,
        order: NDArray[np.int64] | None = None,
        brush: Brush = OPENCV,
    ) -> None:
        self._brush = brush
        self._settings = settings
        self._index = index
        self._reader = reader
        self._order = PictureOrder(len(index), settings.seed if settings.shuffle else None, order)
        self._sequence = Sequence(settings.samples, settings.rank, settings.world)
        self._limits = PerspectiveLimits(*settings.perspective)
        self._buffers = [np.empty((0, 0, 3), np.uint8)] * MIXED_SAMPLES

    def make(self, epoch: int, position: int, out: Picture) -> Sample:
        """Writes one sample.

        A training picture that cannot be read is replaced by the next one of the index; the sample is then what it
        would be if that picture stood in its place. A validation picture is left grey and without labels.

        Args:
            epoch: counted from 0.
            position: place in the epoch; those beyond the last picture start again at the first.
            out: (H, W, 3) uint8, RGB, overwritten.

        Raises:
            ImageError: too many of its pictures could not be read.
        """
        return self._with_stand_ins(lambda failures: self._attempt(epoch, position, out, failures))

    def describe(self, epoch: int, position: int, shape_hw: tuple[int, int], write: Callable[[View], None]) -> Sample:
        """Hands what a training sample shows to `write`, which need not draw it.

        Args:
            epoch, position: as in `make`.
            shape_hw: of the sample.
            write: may raise `UnreadableError`; it is then called again with another picture in that one's place.

        Raises:
            ImageError: as `make`.
        """

        def attempt(failures: Mapping[int, str]) -> Sample:
            view, sample = self._view(epoch, position, shape_hw, failures)
            write(view)
            return sample

        return self._with_stand_ins(attempt)

    def _with_stand_ins(self, attempt: Callable[[Mapping[int, str]], Sample]) -> Sample:
        failures: dict[int, str] = {}
        while True:
            try:
                sample = attempt(failures)
            except UnreadableError as unreadable:
                failures[unreadable.number] = unreadable.error.reason
                if len(failures) > MAX_SUBSTITUTES or len(failures) >= len(self._index):
                    raise unreadable.error from None
                continue
            sample.failures = list(failures.items())
            return sample

    def _attempt(self, epoch: int, position: int, out: Picture, failures: Mapping[int, str]) -> Sample:
        if self._settings.augment:
            view, sample = self._view(epoch, position, (out.shape[0], out.shape[1]), failures)
            self._draw(view, out)
            return sample
        number = self._order(epoch, position)
        if number in failures:
            out.fill(BORDER_GREY)
            return Sample(number, np.zeros((0, 5), np.float32))
        return self._plain(number, out)

    def _plain(self, number: int, out: Picture) -> Sample:
        try:
            loaded = self._reader.load(number)
        except ImageError as error:
            raise UnreadableError(number, error) from None
        shape = out.shape[0], out.shape[1]
        picture, plan = letterbox(loaded, shape, auto=False, scaleup=False)
        bgr_to_rgb_with_hsv(picture, out, None)
        one = self._labelled(number, {})
        objects = letterbox_objects(one, self._settings.imgsz, shape, scaleup=False)
        width, height = one.size_wh
        ratio_hw = plan.ratio_wh[1] * loaded.shape[0] / height, plan.ratio_wh[0] * loaded.shape[1] / width
        labels = to_labels(objects.classes, objects.boxes, shape).astype(np.float32)
        return Sample(number, labels, fit=Fit((height, width), ratio_hw, plan.pad_wh))

    def _view(
        self, epoch: int, position: int, shape: tuple[int, int], failures: Mapping[int, str]
    ) -> tuple[View, Sample]:
        settings = self._settings
        side = min(settings.imgsz, max(shape))  # smaller in the first stages of a run
        rng = sample_generator(settings.seed, epoch, position)
        number = self._order(epoch, position)
        upside_down, left_right = rng.random() < settings.flipud, rng.random() < settings.fliplr
        factors = hsv_factors(rng, settings.hsv) if any(settings.hsv) else None
        is_mosaic = bool(rng.random() < settings.mosaic_share(epoch))
        scenes, ratio = [], 1.0
        self._reader.use_window_for({})
        if is_mosaic:
            partners = Partners(rng, self._order, settings.mosaic_window, self._sequence, epoch, position)
            scenes.append(self._mosaic(rng, number, partners, failures, side))
            if rng.random() < settings.mixup:
                ratio = mixup_ratio(rng)
                scenes.append(self._mosaic(rng, partners.draw(), partners, failures, side))
            self._reader.use_window_for(partners.sequence_of)
        else:
            one = self._labelled(number, failures)
            scenes.append(single_scene(rng, one, side, shape, self._limits))
        boxes = [scene_boxes(scene, shape) for scene in scenes]
        labels = to_labels(np.concatenate([b[0] for b in boxes]), np.concatenate([b[1] for b in boxes]), shape)
        flip_labels(labels, upside_down=upside_down, left_right=left_right)
        flip = flip_matrix(shape, upside_down=upside_down, left_right=left_right)
        view = View(scenes, ratio, flip, factors, shape)
        return view, Sample(number, labels.astype(np.float32), is_mosaic)

    def _draw(self, view: View, out: Picture) -> None:
        if len(view.scenes) > 1:
            self._draw_two(view, out)
            return
        paint(view.scenes[0], view.flip, self._read, out, self._brush, view.factors)
        if view.factors is None:
            self._brush.recolour(out, out, None)

    def _draw_two(self, view: View, out: Picture) -> None:
        if self._buffers[0].shape[:2] != view.shape_hw:
            self._buffers = [np.empty((*view.shape_hw, 3), np.uint8) for _ in range(MIXED_SAMPLES)]
        for scene, buffer in zip(view.scenes, self._buffers, strict=True):
            paint(scene, view.flip, self._read, buffer, self._brush)
        first, second = self._buffers
        self._brush.mix(first, second, view.ratio, out, view.factors)

    def _mosaic(
        self, rng: np.random.Generator, number: int, partners: Partners, failures: Mapping[int, str], side: int
    ) -> Scene:
        four = [self._labelled(n, failures) for n in (number, *(partners.draw() for _ in range(MOSAIC_PICTURES - 1)))]
        return mosaic_scene(rng, four, side, self._limits, self._settings.copy_paste)

    def _labelled(self, number: int, failures: Mapping[int, str]) -> Labelled:
        while number in failures:
            number = (number + 1) % len(self._index)
        outlines = [o if len(o) else None for o in self._index.segments_of(number)]
        return Labelled(number, self._reader.size_wh(number), self._index.labels_of(number), outlines)

    def _read(self, number: int, scale: float) -> Drawable:
        try:
            return self._reader.read(number, scale)
        except ImageError as error:
            raise UnreadableError(number, error) from None
