"""Tells from the first bytes of a file whether it can be a checkpoint, and names what else it is."""

from enum import Enum
from pathlib import Path
from typing import NoReturn

from yolov9.errors import ExitCode, UserError

HEAD_BYTES = 1024
WEB_PAGE_STARTS = (b"<!doctype html", b"<html", b"<?xml", b"<head")
LFS_START = b"version https://git-lfs.github.com/spec/"
ONNX_WORDS = (b"onnx", b"pytorch", b"ir_version")
SAFETENSORS_START = 8
"""A safetensors file has the length of its JSON header in the first 8 bytes."""


class FileKind(Enum):
    """Containers that torch.save has used."""

    ZIP = "zip"
    LEGACY = "legacy"


def file_kind(path: Path) -> FileKind:
    """Container of a checkpoint file.

    Raises:
        UserError: there is no such file, or it is something else; the message says what.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not a file" if path.exists() else "does not exist"
        raise UserError(f"weights {path} {what}", "a .pt file of YOLOv9", "correct the path given to --weights")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        found = f"weights {path} cannot be opened: {error.strerror}"
        raise UserError(found, "a file that this user may read", f"chmod a+r {path}") from error
    if head.startswith(b"PK\x03\x04"):
        return FileKind.ZIP
    if head.startswith(b"\x80") and path.suffix != ".onnx":
        return FileKind.LEGACY
    _refuse(path, head)


def _refuse(path: Path, head: bytes) -> NoReturn:
    what, remedy = _other_kind(path, head)
    needed = "a .pt file as torch.save writes it"
    raise UserError(f"weights {path}: {what}", needed, remedy, ExitCode.BAD_DATA)


def _other_kind(path: Path, head: bytes) -> tuple[str, str]:
    """What the file is, and what to do about it."""
    text = head.lstrip().lower()
    other = "give the .pt file that it was made from"
    if not head:
        return "the file is empty", "copy or download it again; the disk may have been full"
    if head.startswith(LFS_START):
        return "a pointer of git LFS, not the file it stands for", f"git lfs pull --include {path.name}"
    if text.startswith(WEB_PAGE_STARTS):
        return "a web page, not a checkpoint", "download the file itself (the address behind the download button)"
    if path.suffix == ".onnx" or (head[0] == 0x08 and any(word in head for word in ONNX_WORDS)):
        return "an ONNX file", other
    if head[SAFETENSORS_START : SAFETENSORS_START + 1] == b"{" or path.suffix == ".safetensors":
        return "a safetensors file", other
    if b"\0" not in head and all(byte >= 0x20 or byte in b"\t\r\n" for byte in head):
        return "a text file, not a checkpoint", "correct the path given to --weights"
    return "not a checkpoint", "correct the path given to --weights"
