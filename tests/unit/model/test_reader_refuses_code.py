"""Pickles that try to run code, or to exhaust the machine: refused, and nothing of them has run."""

import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.errors import ExitCode, UserError
from yolov9.model import load_weights, read_checkpoint
from yolov9.model.pickle_machine import PickleMachine
from yolov9.model.pickle_values import Inert, PickleError

MARK_COMMAND = "touch ran"
"""What the gadgets below try to do in the working folder."""


class Gadget:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


class BuiltGadget(Gadget):
    """Pickles as a call and a state given to the result."""

    def __reduce__(self) -> Any:
        return (*self.call, {"x": 1})


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


CONV = _global("models.common", "Conv")
GADGETS: dict[str, Any] = {
    "os.system": Gadget(os.system, MARK_COMMAND),
    "subprocess": Gadget(subprocess.call, ["touch", "ran"]),
    "eval": Gadget(eval, "open('ran', 'w')"),
    "exec": Gadget(exec, "open('ran', 'w')"),
    "open": Gadget(open, "ran", "w"),
    "import": Gadget(__import__, "os"),
    "getattr chain": Gadget(getattr, Gadget(__import__, "os"), "system"),
    "nested torch.load": Gadget(torch.load, "other.pt"),
    "nested pickle.loads": Gadget(pickle.loads, b"."),
    "state of a call": BuiltGadget(os.system, MARK_COMMAND),
    "inside the weights": {"model": {"model.0.conv.weight": Gadget(os.system, MARK_COMMAND)}},
    "beside the weights": {"model": {"a": torch.zeros(1)}, "opt": Gadget(os.system, MARK_COMMAND)},
    "as a dictionary key": {"model": {Gadget(os.getpid): 1}},
}
PROGRAMS: dict[str, bytes] = {
    "name that is only mentioned": b"}" + _text("model") + _global("os", "system") + b"s.",
    "call of a layer class": CONV + _text(MARK_COMMAND) + b"\x85R.",
    "call of a result": CONV + b")\x81)R.",
    "dotted name of a known module": b"\x80\x04" + _text("torch.nn.modules") + _text("a.b") + b"\x93" + b")R.",
    "function of a framework module": _global("torch.nn.modules.module", "_addindent") + _text("a") + b"K\x01\x86R.",
    "old instance": b"(" + _text(MARK_COMMAND) + b"ios\nsystem\n.",
    "old object": b"(" + _global("os", "system") + _text(MARK_COMMAND) + b"o.",
    "new object with keywords": b"\x80\x04" + CONV + b")}\x92.",
    "extension registry": b"\x82\x01.",
    "attributes of a class": CONV + b"}" + _text("__reduce__") + b"K\x01sb.",
    "slots of an object": CONV + b")\x81" + b"N}" + _text("__class__") + b"K\x01s\x86b.",
    "attributes of a tensor": b"]}b.",
    "out-of-band buffer": b"\x80\x05\x97.",
    "persistent reference to nothing": _text("module") + _text("x") + b"\x86Q.",
    "text reference": b"Pstorage\n.",
    "name that is not text": b"\x80\x04K\x01K\x02\x93.",
    "unicode name": b"\x80\x04" + _text("mo\u0501els.common") + _text("Conv") + b"\x93.",
}


def _tensor_program(count: bytes, offset: bytes, shape: bytes, strides: bytes) -> bytes:
    """A tensor over a block of `count` numbers; every argument is the operations that make its value."""
    storage = b"(" + _text("storage") + _global("torch", "FloatStorage") + _text("0") + _text("cpu") + count + b"tQ"
    rest = b"\x89" + _global("collections", "OrderedDict") + b")R"
    return _global("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + offset + shape + strides + rest + b"tR."


MILLIONS = b"J\x00\x00\x00\x7f"
MINUS_ONE = b"J\xff\xff\xff\xff"
BOMBS: dict[str, tuple[bytes, str]] = {
    "key that takes for ever to hash": (b"}(" + b")" + b"2\x86" * 60 + b"K\x01u.", "a key of type tuple"),
    "text longer than the file": (b"X\xff\xff\xff\xff.", "damaged"),
    "text of 2**62 bytes": (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b".", "damaged"),
    "number with too many digits": (b"L" + b"9" * 100_000 + b"L\n.", "damaged"),
    "no end": (b"(" * 1000, "damaged|ends too early"),
    "only marks": (b"((((0000.", "not there"),
    "empty": (b"", "damaged|ends too early"),
    "memo out of range": (b"j\xff\xff\xff\xff.", "not there"),
    "one number repeated for ever": (_tensor_program(b"K\x01", b"K\x00", MILLIONS + b"\x85", b"K\x00\x85"), "larger"),
    "tensor behind its data": (_tensor_program(b"K\x09", b"K\x08", b"K\x02\x85", b"K\x01\x85"), "larger"),
    "tensor with long steps": (_tensor_program(b"K\x09", b"K\x00", b"K\x02\x85", MILLIONS + b"\x85"), "larger"),
    "negative offset": (_tensor_program(b"K\x09", MINUS_ONE, b"K\x02\x85", b"K\x01\x85"), "unknown way"),
    "negative side": (_tensor_program(b"K\x09", b"K\x00", MINUS_ONE + b"\x85", b"K\x01\x85"), "impossible sizes"),
    "nine dimensions": (_tensor_program(b"K\x09", b"K\x00", b"(" + b"K\x01" * 9 + b"t", b"K\x01\x85"), "impossible"),
    "huge storage": (_tensor_program(b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"K\x00", b")", b")"), "impossible size"),
}


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def as_archive(program: bytes) -> Path:
    """A file of torch.save's form around a hand-made pickle."""
    with zipfile.ZipFile("hand.pt", "w") as archive:
        archive.writestr("hand/data.pkl", program)
        archive.writestr("hand/version", "3\n")
    return Path("hand.pt")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("gadget", GADGETS)
def test_gadget_is_refused_and_does_not_run(gadget: str, zipped: bool) -> None:
    torch.save(GADGETS[gadget], "bad.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match="wants to run code: its pickle asks for ") as caught:
        load_weights("bad.pt")
    assert caught.value.exit_code is ExitCode.BAD_DATA
    assert "SHA-256" in caught.value.remedy
    assert not Path("ran").exists()


def test_refused_name_is_in_the_message() -> None:
    torch.save(Gadget(os.system, MARK_COMMAND), "bad.pt")
    with pytest.raises(UserError, match=rf"{os.name}\.system"):
        read_checkpoint("bad.pt")


@pytest.mark.parametrize("program", PROGRAMS)
def test_hand_made_program_is_refused(program: str) -> None:
    with pytest.raises(UserError, match=r"wants to run code|is not a whole checkpoint") as caught:
        load_weights(as_archive(PROGRAMS[program]))
    assert caught.value.exit_code is ExitCode.BAD_DATA
    assert not Path("ran").exists()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("bomb", BOMBS)
def test_bomb_is_refused_at_once(bomb: str) -> None:
    program, words = BOMBS[bomb]
    with pytest.raises(UserError, match=words) as caught:
        load_weights(as_archive(program))
    assert caught.value.exit_code is ExitCode.BAD_DATA


@pytest.mark.timeout(20)
def test_large_memo_number_costs_no_memory() -> None:
    assert PickleMachine().run(io.BytesIO(b"K\x07r\xff\xff\xff\xff.")) == 7


@pytest.mark.timeout(20)
def test_modules_nested_without_end_are_refused() -> None:
    """A module that contains itself."""
    module = CONV + b")\x81q\x01}" + _text("_modules") + b"}" + _text("a") + b"h\x01ss" + b"b."
    with pytest.raises(UserError, match="nested more than 32 deep"):
        load_weights(as_archive(module))


@pytest.mark.timeout(20)
def test_modules_that_multiply_are_refused() -> None:
    """Thirty modules, each of which contains the one before twice."""
    program = CONV + b")\x81q\x00}" + _text("_parameters") + b"}sb0"
    for level in range(30):
        inner = _text("a") + b"h" + bytes([level]) + _text("b") + b"h" + bytes([level])
        program += CONV + b")\x81q" + bytes([level + 1]) + b"}" + _text("_modules") + b"}(" + inner + b"usb0"
    with pytest.raises(UserError, match="more than 20000 modules"):
        load_weights(as_archive(program + b"h" + bytes([30]) + b"."))


def test_compressed_archive_is_refused() -> None:
    with zipfile.ZipFile("bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", b"\0" * (1 << 24))
    with pytest.raises(UserError, match="compressed or has an impossible size"):
        load_weights("bomb.pt")


def test_names_are_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package `models` beside the file is what the original code would import."""
    Path("models").mkdir()
    Path("models/__init__.py").write_text("open('ran', 'w')\n")
    Path("models/common.py").write_text("open('ran', 'w')\n")
    monkeypatch.syspath_prepend(".")
    value = PickleMachine().run(io.BytesIO(CONV + b")\x81}" + _text("c") + b"K\x05sb."))
    assert isinstance(value, Inert)
    assert (str(value.kind), value.state) == ("models.common.Conv", {"c": 5})
    assert "models" not in sys.modules
    assert not Path("ran").exists()


def test_dunder_attributes_stay_data() -> None:
    program = CONV + b")\x81}" + _text("__class__") + _text("x") + b"sb."
    value = PickleMachine().run(io.BytesIO(program))
    assert type(value) is Inert
    assert value.state == {"__class__": "x"}


def test_damaged_pickles_raise_nothing_but_the_readers_own_error(
    real_pickle: bytes, damage: Callable[[bytes, int], bytes]
) -> None:
    refused = 0
    for seed in range(60):
        try:
            PickleMachine().run(io.BytesIO(damage(real_pickle, seed)))
        except PickleError:
            refused += 1
    assert refused > 0, "some damage has to be noticed"


@pytest.fixture
def real_pickle() -> bytes:
    torch.save({"model": {f"model.{i}.conv.weight": torch.zeros(2, 2) for i in range(5)}, "epoch": 3}, "real.pt")
    with zipfile.ZipFile("real.pt") as archive:
        return archive.read("real/data.pkl")


@pytest.fixture
def damage() -> Callable[[bytes, int], bytes]:
    """Changes a few bytes of a pickle, and sometimes cuts it."""

    def change(content: bytes, seed: int) -> bytes:
        random = torch.Generator().manual_seed(seed)

        def draw(limit: int) -> int:
            return int(torch.randint(limit, (1,), generator=random))

        damaged = bytearray(content)
        for _ in range(1 + draw(4)):
            damaged[draw(len(damaged))] = draw(256)
        return bytes(damaged[: draw(len(damaged))] if draw(4) == 0 else damaged)

    return change
