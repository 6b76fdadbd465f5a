"""Answers of a relay, read as whoever lives longer than this version has to read them.

A member that is not known here is passed over, however deep it stands: the shapes of what is sent are closed,
and some of them are parts of what is answered.
"""

from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec

__all__ = ["read_answer"]

_T = TypeVar("_T")


def read_answer(body: bytes, shape: type[_T]) -> _T:
    """Return the JSON in ``body`` as ``shape``, unknown members passed over.

    Raises `msgspec.MsgspecError`, `RecursionError` or `ValueError` for what is not of that shape.
    """
    return msgspec.convert(_known(msgspec.json.decode(body), shape), shape)


def _known(value: Any, shape: Any) -> Any:
    """Return what ``shape`` names of ``value``; what does not fit is left to be found out."""
    if get_origin(shape) is Annotated:
        return _known(value, get_args(shape)[0])
    if get_origin(shape) in (Union, UnionType):
        structs = [each for each in get_args(shape) if _is_struct(each)]
        return _known(value, structs[0]) if len(structs) == 1 else value
    if get_origin(shape) is list and isinstance(value, list):
        (of,) = get_args(shape)
        items = msgspec.convert(value, list[Any])
        return [_known(each, of) for each in items]
    if _is_struct(shape) and isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
        return {name: _known(members[name], of) for name, of in fields.items() if name in members}
    return value


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)
