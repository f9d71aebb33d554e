"""Decodes JPEGs to a device: nvJPEG on a GPU, libjpeg on a CPU, both through torchvision."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from yolov9.data.images import decode_image
from yolov9.engine.out_of_memory import is_out_of_memory


class DecodeError(Exception):
    """A file that no decoder can read.

    Args:
        place: among those that were to be decoded.
        reason: in a few words.
    """

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason


def decode_jpegs(files: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Returns pictures (3, H, W), red, green, blue.

    Args:
        files: contents, flat uint8 on the CPU, of plain JPEGs (`plain_jpeg_hw`).
        device: where the pictures are to be.

    Raises:
        DecodeError: one of them cannot be decoded, here or on the CPU.
        torch.OutOfMemoryError: there is no room for the pictures.
    """
    try:
        return _decode(list(files), device)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        # One of them is damaged; which one is not said.
        return [_decode_leniently(place, file, device) for place, file in enumerate(files)]


def shrink_planes(picture: Tensor, reduction: int) -> Tensor:
    """Returns 1/reduction of a picture (3, H, W) by averaging; sizes are rounded up, edges repeated."""
    if reduction == 1:
        return picture
    height, width = picture.shape[1:]
    border = (0, -width % reduction, 0, -height % reduction)
    padded = functional.pad(picture[None].float(), border, mode="replicate")
    return (functional.avg_pool2d(padded, reduction)[0] + 0.5).floor().to(torch.uint8)


def decode_alone(file: Tensor, device: torch.device) -> Tensor:
    """Returns one picture.

    Raises:
        RuntimeError: the device's decoder cannot read it, or there is none.
    """
    return _decode([file], device)[0]


def _decode_leniently(place: int, file: Tensor, device: torch.device) -> Tensor:
    """Decodes one picture; OpenCV reads damaged ones as far as they go."""
    try:
        return decode_alone(file, device)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        try:
            picture = decode_image(file.numpy().tobytes())
        except ValueError as refused:
            raise DecodeError(place, str(refused)) from None
    return torch.from_numpy(picture).to(device).flip(-1).permute(2, 0, 1)


def _decode(files: list[Tensor], device: torch.device) -> list[Tensor]:
    from torchvision.io import ImageReadMode, decode_jpeg  # takes a second to import, and few runs need it

    with warnings.catch_warnings():
        # torchvision 0.29 announces that TorchCodec will do this one day.
        warnings.simplefilter("ignore")
        pictures: list[Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=device)
    return pictures
