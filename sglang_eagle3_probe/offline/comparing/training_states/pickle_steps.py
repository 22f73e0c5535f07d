"""Follows the pickle instructions that ``torch.save`` writes, and no others. Nothing is called."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_DIMENSIONS = 16
REBUILD_TENSOR = ("torch._utils", "_rebuild_tensor_v2")
REBUILD_PARAMETER = ("torch._utils", "_rebuild_parameter")
ORDERED_DICT = ("collections", "OrderedDict")
SIZE = ("torch", "Size")


class Refused(Exception):
    """The file asks for something that is not data. The message goes on after the file's name."""


@dataclass(frozen=True)
class Name:
    """A name of a Python object that the file refers to; never looked up."""

    module: str
    attribute: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.module, self.attribute


@dataclass(frozen=True)
class TensorCall:
    """What would have made a tensor: where its elements lie, in elements of its storage."""

    storage: str
    """Name of torch's class, such as ``BFloat16Storage``."""
    key: str
    """Of the zip's member below ``data/``."""
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Mark:
    """Where a container's members begin."""


def follow(steps: bytes) -> Any:
    """What the instructions build: dicts, lists, tuples, plain values and ``TensorCall``s.

    Raises:
        Refused: an instruction or a name is not among those that data needs.
    """
    machine = _Machine()
    try:
        for code, argument, _at in pickletools.genops(steps):
            if code.name == "STOP":
                return machine.stack.pop()
            machine.step(code.name, argument)
    except Refused:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise Refused(f"has a damaged description ({type(error).__name__})") from None
    raise Refused("has a description that is cut off")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, code: str, argument: Any) -> None:
        """One instruction."""
        plain = _PLAIN.get(code)
        if plain is not None:
            self.stack.append(plain())
        elif code in _LITERALS:
            self.stack.append(argument)
        elif code == "PROTO" or code == "FRAME":
            pass
        elif code in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif code == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif code in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif code == "GLOBAL":
            self.stack.append(_named(*argument.split(" ", 1)))
        elif code == "STACK_GLOBAL":
            attribute, module = self.stack.pop(), self.stack.pop()
            self.stack.append(_named(module, attribute))
        elif code == "BINPERSID":
            self.stack.append(_storage(self.stack.pop()))
        elif code == "REDUCE":
            arguments = self.stack.pop()
            self.stack.append(_called(self.stack.pop(), arguments))
        else:
            self._container(code)

    def _container(self, code: str) -> None:
        stack = self.stack
        if code in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(code[-1])
            last = tuple(stack[-count:])
            if len(last) < count:
                raise IndexError
            del stack[-count:]
            stack.append(last)
        elif code == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif code == "APPEND":
            member = stack.pop()
            self._top(list).append(member)
        elif code == "APPENDS":
            members = self._since_mark()
            self._top(list).extend(members)
        elif code == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._top(dict)[_key(key)] = value
        elif code == "SETITEMS":
            items = self._since_mark()
            for key, value in zip(items[::2], items[1::2], strict=True):
                self._top(dict)[_key(key)] = value
        else:
            raise Refused(f"uses the pickle instruction {code}, which plain data does not need")

    def _since_mark(self) -> list[Any]:
        stack = self.stack
        at = len(stack) - 1
        while not isinstance(stack[at], _Mark):
            at -= 1
            if at < 0:
                raise IndexError
        members = stack[at + 1 :]
        del stack[at:]
        return members

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise TypeError
        return self.stack[-1]


_PLAIN: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "MARK": _Mark,
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}  # fmt: skip
_LITERALS = frozenset(
    {
        "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
    }
)  # fmt: skip


def _named(module: Any, attribute: Any) -> Name:
    name = Name(str(module), str(attribute))
    known = (REBUILD_TENSOR, REBUILD_PARAMETER, ORDERED_DICT, SIZE)
    if name.pair in known or (name.module == "torch" and name.attribute.endswith("Storage")):
        return name
    text = "".join(c if c.isprintable() else "?" for c in f"{module}.{attribute}")[:120]
    raise Refused(f"refers to {text}, which is code or a class and not a tensor")


def _key(key: Any) -> Any:
    if not isinstance(key, (str, int)):
        raise TypeError
    return key


def _storage(description: Any) -> tuple[Name, str]:
    word, kind, key, _device, _count = description
    if word != "storage" or not isinstance(kind, Name) or not isinstance(key, str):
        raise TypeError
    return kind, key


def _called(name: Any, arguments: Any) -> Any:
    if not isinstance(name, Name) or type(arguments) is not tuple:
        raise TypeError
    if name.pair == ORDERED_DICT and not arguments:
        return {}
    if name.pair == SIZE:
        return tuple(arguments[0])
    if name.pair == REBUILD_PARAMETER and isinstance(arguments[0], TensorCall):
        return arguments[0]
    if name.pair != REBUILD_TENSOR:
        raise TypeError
    (kind, key), offset, shape, strides = arguments[:4]
    shape, strides = tuple(shape), tuple(strides)
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or len(shape) > MOST_DIMENSIONS:
        raise Refused("has a tensor whose shape and strides do not go together")
    if not all(type(n) is int and 0 <= n < 1 << 48 for n in numbers):
        raise Refused("has a tensor with sizes that no tensor has")
    return TensorCall(kind.attribute, key, offset, shape, strides)
