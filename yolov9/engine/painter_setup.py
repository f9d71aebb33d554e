"""Whether training pictures are drawn on the device, and what draws them."""

from dataclasses import replace

import cv2
import numpy as np
import torch

from yolov9.config.decode_memory import picture_store_bytes
from yolov9.config.small_data import mosaic_window
from yolov9.data import DatasetIndex
from yolov9.engine.jpeg_decoder import decode_files
from yolov9.engine.out_of_memory import is_out_of_memory
from yolov9.engine.run_context import RunContext
from yolov9.engine.sample_painter import SamplePainter
from yolov9.errors import ExitCode, UserError, first_line
from yolov9.logs import LOG

JPEG_SUFFIXES = (".jpg", ".jpeg")
LEAST_JPEGS = 0.9
"""Share of JPEGs by name below which the CPU decodes all: the others travel as pixels, which take more memory."""
LOOKED_AT = 1000
"""Names that are looked at, spread over the data set."""


def with_decoding_for(context: RunContext, index: DatasetIndex) -> RunContext:
    """Returns the context, with `--decode cpu` where the pictures are of another kind than the GPU decodes."""
    if not context.draws_on_device:
        return context
    numbers = np.unique(np.linspace(0, len(index) - 1, LOOKED_AT, dtype=np.int64)).tolist()
    share = sum(index.path(number).lower().endswith(JPEG_SUFFIXES) for number in numbers) / len(numbers)
    if share >= LEAST_JPEGS:
        return context
    LOG.warning("%.0f %% of the training pictures are JPEGs: they are decoded on the CPU, not on the GPU", 100 * share)
    return replace(context, settings=replace(context.settings, decode="cpu"))


def make_painter(context: RunContext, pictures: int) -> SamplePainter | None:
    """Returns what draws training pictures; None where the loader's workers do.

    Args:
        context: the run.
        pictures: of the training split, with those that are left out.

    Raises:
        UserError: the installed torchvision cannot decode on this device.
    """
    if not context.draws_on_device:
        return None
    settings, device = context.settings, context.precision.device
    window = mosaic_window(settings.mosaic_window, pictures)
    store_bytes = picture_store_bytes(settings.imgsz, window, context.batch)
    painter = SamplePainter(device, store_bytes)
    _try_decoder(device)
    LOG.info("pictures are decoded and drawn on %s; %.2f GB hold decoded ones", device, store_bytes / 1e9)
    return painter


def _try_decoder(device: torch.device) -> None:
    """Decodes a small picture, which also loads the decoder's code and takes its memory."""
    _, data = cv2.imencode(".jpg", np.full((64, 64, 3), 114, np.uint8))
    try:
        decode_files([torch.from_numpy(np.asarray(data, np.uint8).ravel())], device)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise UserError(
            found=f"torchvision cannot decode JPEGs on {device}: {first_line(error)}",
            needed="a torchvision that was built with nvJPEG, and its library",
            remedy="--decode cpu, or the CUDA wheels of torchvision",
            exit_code=ExitCode.NO_GPU,
        ) from None
