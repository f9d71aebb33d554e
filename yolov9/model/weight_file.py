"""Container of a weights file: finds the pickle in it, and reads single tensors from the data beside the pickle."""

import io
import mmap
import struct
import zipfile
import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor

from yolov9.errors import ExitCode, UserError
from yolov9.model.file_kind import FileKind, file_kind
from yolov9.model.pickle_machine import PickleMachine
from yolov9.model.pickle_values import ForbiddenGlobal, PickleError, StorageRecord, TensorRecord

MAX_PICKLE_BYTES = 64 << 20
"""The pickle of the largest training file of the original code has about 1 MB."""
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""First value of files that torch.save wrote before it used zip."""
LEGACY_COUNT_BYTES = 8
WHOLE_FILE_REMEDY = "copy or download the file again and compare its size and SHA-256 with the source"
RESAVE_REMEDY = (
    "where the file was made, save plain weights and give that file instead: "
    "python -c \"import torch; m = torch.load('FILE', weights_only=False)['model']; "
    "torch.save(m.float().state_dict(), 'weights.pt')\" (only for a file whose origin you trust: this runs its code)"
)


_DAMAGE = (PickleError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError)
"""What the readers of zip and mmap raise for a damaged, cut or encrypted file."""


class _Container(Protocol):
    """Where the pickle and the numbers of a file are."""

    def root(self) -> Any:
        """The value of the pickle."""

    def read(self, storage: StorageRecord) -> bytes | memoryview:
        """The bytes of one block of numbers."""


class _ZipContainer:
    """Files of torch.save as they have been since 2020: a zip archive without compression."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._entries = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in self._entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise PickleError("the archive holds no data.pkl")
        self._folder = pickles[0].removesuffix("data.pkl")
        if self._folder + "constants.pkl" in self._entries:
            raise PickleError("it is a TorchScript program")

    def _bytes(self, name: str, limit: int) -> bytes:
        info = self._entries.get(self._folder + name)
        if info is None:
            raise PickleError(f"{name} is missing in the archive")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > limit:
            raise PickleError(f"{name} is compressed or has an impossible size")
        return self._archive.read(info)

    def root(self) -> Any:
        if self._folder + "byteorder" in self._entries and self._bytes("byteorder", 16) != b"little":
            raise PickleError("its numbers are stored with the high byte first")
        return PickleMachine().run(io.BytesIO(self._bytes("data.pkl", MAX_PICKLE_BYTES)))

    def read(self, storage: StorageRecord) -> bytes:
        size = storage.count * storage.dtype.itemsize
        content = self._bytes(f"data/{storage.key}", size)
        if len(content) != size:
            raise PickleError(f"data/{storage.key} has {len(content)} bytes instead of {size}")
        return content


class _LegacyContainer:
    """Older files of torch.save: five pickles in a row, then the numbers of each block behind its count."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._places: dict[str, int] = {}

    def root(self) -> Any:
        if PickleMachine().run(self._content) != LEGACY_MAGIC:  # type: ignore[arg-type]  # mmap reads like a file
            raise PickleError("it is a pickle, but not one of torch.save")
        for _ in ("protocol", "system"):
            PickleMachine().run(self._content)  # type: ignore[arg-type]
        machine = PickleMachine()
        root = machine.run(self._content)  # type: ignore[arg-type]
        keys = PickleMachine().run(self._content)  # type: ignore[arg-type]
        place = self._content.tell()
        if not isinstance(keys, list) or not all(isinstance(key, str) and key in machine.storages for key in keys):
            raise PickleError("its list of data does not fit")
        for key in keys:
            record = machine.storages[key]
            if int.from_bytes(self._content[place : place + LEGACY_COUNT_BYTES], "little") != record.count:
                raise PickleError(f"data {key} is not where it should be")
            self._places[key] = place + LEGACY_COUNT_BYTES
            place += LEGACY_COUNT_BYTES + record.count * record.dtype.itemsize
        if place > len(self._content):
            raise PickleError("it ends too early")
        return root

    def read(self, storage: StorageRecord) -> bytes:
        if storage.key not in self._places:
            raise PickleError(f"data {storage.key} is missing")
        place = self._places[storage.key]
        return self._content[place : place + storage.count * storage.dtype.itemsize]


class WeightFile(AbstractContextManager["WeightFile"]):
    """An open weights file.

    Args:
        path: the file.

    Attributes:
        root: value of its pickle: plain values, `Inert` objects and `TensorRecord`s.

    Raises:
        UserError: no such file, another kind of file, damaged, or its pickle asks for something forbidden (exit code
            65); the message says which, and how to go on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blocks: dict[str, Tensor] = {}
        kind = file_kind(path)
        self._file = path.open("rb")
        try:
            self._container = self._open(kind)
            self.root = self._container.root()
        except BaseException as error:
            self._file.close()
            self._explain(error)
            raise

    def _open(self, kind: FileKind) -> _Container:
        if kind is FileKind.ZIP:
            return _ZipContainer(zipfile.ZipFile(self._file))
        return _LegacyContainer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))

    def _explain(self, error: BaseException) -> None:
        """Turns what the readers raise into a UserError; returns for anything else."""
        if isinstance(error, ForbiddenGlobal):
            raise UserError(
                f"{self.path} wants to run code: its pickle asks for {error.name}; nothing of it was run",
                "a checkpoint that holds weights only",
                f"get the file from its original source and compare the SHA-256; or, {RESAVE_REMEDY}",
                ExitCode.BAD_DATA,
            ) from error
        if isinstance(error, _DAMAGE):
            raise UserError(
                f"{self.path} ({self.path.stat().st_size} bytes) is not a whole checkpoint: {error}",
                "a complete .pt file as torch.save writes it",
                WHOLE_FILE_REMEDY,
                ExitCode.BAD_DATA,
            ) from error

    def tensor(self, record: TensorRecord) -> Tensor:
        """The tensor that `record` describes, contiguous; half and double precision become float32."""
        try:
            flat = self._numbers(record.storage)
        except BaseException as error:
            self._explain(error)
            raise
        view = flat.as_strided(record.shape, record.strides, record.offset)
        return view.to(torch.float32 if view.is_floating_point() else view.dtype, copy=True).contiguous()

    def _numbers(self, storage: StorageRecord) -> Tensor:
        """One block of numbers; blocks are kept while the file is open, because tensors may share them."""
        if storage.key not in self._blocks:
            content = bytearray(self._container.read(storage))
            flat = torch.frombuffer(content, dtype=storage.dtype) if content else torch.empty(0, dtype=storage.dtype)
            self._blocks[storage.key] = flat
        return self._blocks[storage.key]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.clear()
        self._file.close()
