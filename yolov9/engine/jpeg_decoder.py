"""Decodes JPEGs to a device: nvJPEG on a GPU, libjpeg on a CPU, both through torchvision."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from yolov9.data.images import decode_image
from yolov9.engine.out_of_memory import is_out_of_memory
from yolov9.errors import first_line
from yolov9.logs import LOG


class UndecodableError(Exception):
    """A file that no decoder can read, so another picture has to stand in.

    Args:
        picture: its number.
        reason: in a few words.
    """

    def __init__(self, picture: int, reason: str) -> None:
        super().__init__(picture, reason)
        self.picture = picture
        self.reason = reason


class JpegDecoder:
    """Decodes plain JPEGs (`plain_jpeg_hw`) that are known by the numbers of their pictures.

    Args:
        device: where the pictures are to be.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._refused: set[int] = set()
        """Pictures that the device's decoder has refused; OpenCV reads damaged ones as far as they go."""

    def __call__(self, files: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Returns pictures (3, H, W), red, green, blue, of contents of files, flat uint8 on the CPU.

        Raises:
            UndecodableError: one of them cannot be decoded, here or on the CPU.
            torch.OutOfMemoryError: there is no room for the pictures.
        """
        usual = {number: file for number, file in files.items() if number not in self._refused}
        try:
            pictures = dict(zip(usual, decode_files(list(usual.values()), self._device), strict=True)) if usual else {}
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            # One of them is damaged; which one is not said.
            pictures = {number: self._decode_leniently(number, file) for number, file in usual.items()}
        pictures.update({number: self._on_cpu(number, files[number]) for number in files if number in self._refused})
        return pictures

    def _decode_leniently(self, number: int, file: Tensor) -> Tensor:
        try:
            return decode_files([file], self._device)[0]
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            if not self._refused:
                LOG.info("what %s cannot decode is decoded on the CPU: %s", self._device, first_line(error))
        self._refused.add(number)
        return self._on_cpu(number, file)

    def _on_cpu(self, number: int, file: Tensor) -> Tensor:
        try:
            picture = decode_image(file.numpy().tobytes())
        except ValueError as error:
            raise UndecodableError(number, str(error)) from None
        return torch.from_numpy(picture).to(self._device).flip(-1).permute(2, 0, 1)


def decode_files(files: list[Tensor], device: torch.device) -> list[Tensor]:
    """Returns pictures (3, H, W) of contents of JPEG files.

    Raises:
        RuntimeError: the device's decoder cannot read one of them, or there is none.
    """
    from torchvision.io import ImageReadMode, decode_jpeg  # takes a second to import, and few runs need it

    with warnings.catch_warnings():
        # torchvision 0.29 announces that TorchCodec will do this one day.
        warnings.simplefilter("ignore")
        pictures: list[Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=device)
    return pictures


def shrink_planes(picture: Tensor, reduction: int) -> Tensor:
    """Returns 1/reduction of a picture (3, H, W) by averaging; sizes are rounded up, edges repeated."""
    if reduction == 1:
        return picture
    height, width = picture.shape[1:]
    border = (0, -width % reduction, 0, -height % reduction)
    padded = functional.pad(picture[None].float(), border, mode="replicate")
    return (functional.avg_pool2d(padded, reduction)[0] + 0.5).floor().to(torch.uint8)
