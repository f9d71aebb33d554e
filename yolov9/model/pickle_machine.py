"""Reads a pickle without running it.

The standard unpickler imports modules and calls functions that the file names. This one follows the operations of the
format on a stack of plain values: names stay names, objects become `Inert`, and the only functions that are ever called
are the few of `pickle_names`. What a checkpoint does not need is refused.
"""

import pickletools
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from yolov9.model.pickle_names import allowed_name, call, checked_key, new_object, storage_record
from yolov9.model.pickle_values import Inert, PickleError, StorageRecord

MAX_OPERATIONS = 5_000_000
"""The largest training file of the original code has about 0.3 million."""

_MARK = object()


class PickleMachine:
    """One pass over one pickle.

    Attributes:
        storages: blocks of numbers that the pickle refers to, by key.
    """

    def __init__(self) -> None:
        self.storages: dict[str, StorageRecord] = {}
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, stream: BinaryIO) -> Any:
        """The value of the pickle that starts at the position of `stream`, which is left behind its end.

        Raises:
            ForbiddenGlobal: the pickle names something that no checkpoint needs.
            PickleError: damaged, too large, or not a pickle.
        """
        for count, (name, arg) in enumerate(_operations(stream)):
            if count > MAX_OPERATIONS:
                raise PickleError(f"it has more than {MAX_OPERATIONS} operations")
            if name == "STOP":
                return self._pop()
            if name in _PUSHED:
                self._stack.append(arg)
            elif name in _ACTIONS:
                _ACTIONS[name](self, arg)
            else:
                raise PickleError(f"it uses the operation {name}")
        raise PickleError("it ends too early")

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise PickleError("it takes a value that is not there")
        return self._stack.pop()

    def _top(self) -> Any:
        value = self._pop()
        self._stack.append(value)
        return value

    def _to_mark(self) -> list[Any]:
        items: list[Any] = []
        while self._stack:
            value = self._stack.pop()
            if value is _MARK:
                return items[::-1]
            items.append(value)
        raise PickleError("it takes values that are not there")

    def _pops(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _get(self, index: Any) -> None:
        if index not in self._memo:
            raise PickleError("it refers to a value that is not there")
        self._push(self._memo[index])

    def _put(self, index: Any) -> None:
        self._memo[index] = self._top()

    def _memoize(self, _arg: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def _discard(self, _arg: Any) -> None:
        if not self._stack:
            raise PickleError("it takes a value that is not there")
        self._stack.pop()

    def _discard_to_mark(self, _arg: Any) -> None:
        self._to_mark()

    def _extend(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, list):
            raise PickleError("it adds items to something that is not a list")
        target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(items) % 2:
            raise PickleError("it adds keys to something that is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[checked_key(key)] = value

    def _dict(self, _arg: Any) -> None:
        items = self._to_mark()
        self._push({})
        self._set_items(items)

    def _global(self, arg: Any) -> None:
        self._push(allowed_name(*str(arg).split(" ", 1)))

    def _stack_global(self, _arg: Any) -> None:
        module, name = self._pops(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleError("a name is not text")
        self._push(allowed_name(module, name))

    def _reduce(self, _arg: Any) -> None:
        self._push(call(*self._pops(2)))

    def _new_object(self, _arg: Any) -> None:
        self._push(new_object(*self._pops(2)))

    def _build(self, _arg: Any) -> None:
        """Gives an inert object its attributes. An OrderedDict's own attributes (versions of layers) are dropped."""
        state = self._pop()
        target = self._top()
        if isinstance(target, dict) and isinstance(state, dict):
            return
        if not isinstance(target, Inert):
            raise PickleError("it changes the attributes of something that is not an object")
        if isinstance(state, dict) and all(isinstance(key, str) for key in state):
            target.state = state
        elif str(target.kind).startswith("numpy."):
            target.args = (*target.args, state)
        else:
            raise PickleError(f"an object of {target.kind} has attributes of an unknown form")

    def _persistent(self, _arg: Any) -> None:
        record = storage_record(self._pop())
        if self.storages.setdefault(record.key, record) != record:
            raise PickleError(f"it describes data {record.key} in two ways")
        self._push(record)


def _operations(stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Names and arguments of the operations; whatever the standard parser raises becomes a PickleError."""
    try:
        for operation, arg, _ in pickletools.genops(stream):
            yield operation.name, arg
    except (ValueError, EOFError, OverflowError, MemoryError, UnicodeDecodeError) as error:
        raise PickleError(f"it is damaged ({error})") from error


_PUSHED = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
"""Operations that put their argument on the stack."""

_ACTIONS: dict[str, Callable[[PickleMachine, Any], None]] = {
    "PROTO": lambda machine, arg: None,
    "FRAME": lambda machine, arg: None,
    "MARK": lambda machine, arg: machine._push(_MARK),
    "POP": PickleMachine._discard,
    "POP_MARK": PickleMachine._discard_to_mark,
    "DUP": lambda machine, arg: machine._push(machine._top()),
    "NONE": lambda machine, arg: machine._push(None),
    "NEWTRUE": lambda machine, arg: machine._push(True),
    "NEWFALSE": lambda machine, arg: machine._push(False),
    "EMPTY_LIST": lambda machine, arg: machine._push([]),
    "EMPTY_TUPLE": lambda machine, arg: machine._push(()),
    "EMPTY_DICT": lambda machine, arg: machine._push({}),
    "LIST": lambda machine, arg: machine._push(machine._to_mark()),
    "TUPLE": lambda machine, arg: machine._push(tuple(machine._to_mark())),
    "TUPLE1": lambda machine, arg: machine._push(tuple(machine._pops(1))),
    "TUPLE2": lambda machine, arg: machine._push(tuple(machine._pops(2))),
    "TUPLE3": lambda machine, arg: machine._push(tuple(machine._pops(3))),
    "DICT": PickleMachine._dict,
    "APPEND": lambda machine, arg: machine._extend(machine._pops(1)),
    "APPENDS": lambda machine, arg: machine._extend(machine._to_mark()),
    "SETITEM": lambda machine, arg: machine._set_items(machine._pops(2)),
    "SETITEMS": lambda machine, arg: machine._set_items(machine._to_mark()),
    "PUT": PickleMachine._put,
    "BINPUT": PickleMachine._put,
    "LONG_BINPUT": PickleMachine._put,
    "MEMOIZE": PickleMachine._memoize,
    "GET": PickleMachine._get,
    "BINGET": PickleMachine._get,
    "LONG_BINGET": PickleMachine._get,
    "GLOBAL": PickleMachine._global,
    "STACK_GLOBAL": PickleMachine._stack_global,
    "REDUCE": PickleMachine._reduce,
    "NEWOBJ": PickleMachine._new_object,
    "BUILD": PickleMachine._build,
    "BINPERSID": PickleMachine._persistent,
}
"""Every other operation that a checkpoint needs; the rest of the format is refused."""
