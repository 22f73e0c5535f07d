"""Record structs as Arrow schemas: the same columns whatever a trace happens to hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pyarrow as pa

from sglang_eagle3_probe.trace.record_base import Record

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """One field of a record."""

    name: str
    type: pa.DataType
    convert: Convert

    def array(self, records: Sequence[Record]) -> pa.Array:
        """The field of these records."""
        values = [self.convert(getattr(record, self.name)) for record in records]
        return pa.array(values, self.type)


def columns_of(record_type: type[Record]) -> list[Column]:
    """Fields in the order of the struct.

    Structs stay structs, lists lists, dictionaries become maps; a dictionary of anything becomes
    JSON text, since no column type could hold it.
    """
    struct = inspect.type_info(record_type)
    assert isinstance(struct, inspect.StructType)
    return [Column(f.name, *_arrow(f.type)) for f in struct.fields]


def table(record_type: type[Record], records: Sequence[Record]) -> pa.Table:
    """Records of one type as rows."""
    columns = columns_of(record_type)
    return pa.Table.from_arrays(
        [column.array(records) for column in columns], names=[c.name for c in columns]
    )


def _same(value: Any) -> Any:
    return value


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SCALARS: list[tuple[type[inspect.Type], pa.DataType]] = [
    (inspect.BoolType, pa.bool_()),
    (inspect.IntType, pa.int64()),
    (inspect.FloatType, pa.float64()),
    (inspect.StrType, pa.string()),
    (inspect.LiteralType, pa.string()),
]


def _arrow(info: inspect.Type) -> tuple[pa.DataType, Convert]:
    for kind, type_ in _SCALARS:
        if isinstance(info, kind):
            return type_, _same
    if isinstance(info, inspect.UnionType):
        others = [t for t in info.types if not isinstance(t, inspect.NoneType)]
        if len(others) != 1:
            return pa.string(), _as_json
        type_, convert = _arrow(others[0])
        return type_, lambda value: None if value is None else convert(value)
    if isinstance(info, inspect.ListType):
        type_, convert = _arrow(info.item_type)
        if convert is _same:
            return pa.list_(type_), _same
        return pa.list_(type_), lambda values: [convert(value) for value in values]
    if isinstance(info, inspect.DictType):
        type_, convert = _arrow(info.value_type)
        if isinstance(info.value_type, inspect.AnyType):
            return pa.string(), _as_json
        return pa.map_(pa.string(), type_), lambda pairs: [
            (key, convert(value)) for key, value in pairs.items()
        ]
    if isinstance(info, inspect.StructType):
        fields = [(f.name, *_arrow(f.type)) for f in info.fields]
        return pa.struct([(name, type_) for name, type_, _ in fields]), lambda struct: {
            name: convert(getattr(struct, name)) for name, _, convert in fields
        }
    return pa.string(), _as_json
