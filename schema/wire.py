"""How records travel: JSON over HTTP, msgpack to Redis and into the store's blobs.

msgpack for Lua carries fingerprints as decimal strings: a Lua number is a double and would lose
the low bits, and ``cmsgpack`` refuses msgpack's binary type.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import zstandard

T = TypeVar("T")

_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


def to_json(record: Any) -> bytes:
    """Encode a record (or plain lists, dicts, numbers) as UTF-8 JSON."""
    return _json.encode(record)


def from_json(data: bytes | str, type_: type[T]) -> T:
    """Decode and validate JSON. Raises ``msgspec.ValidationError`` naming the bad path."""
    return msgspec.json.decode(data, type=type_)


def to_msgpack(value: Any) -> bytes:
    """Encode for a Lua script or a blob."""
    return _msgpack.encode(value)


def from_msgpack(data: bytes, type_: type[T]) -> T:
    """Decode msgpack. Raises ``msgspec.ValidationError`` or ``msgspec.DecodeError``."""
    return msgspec.msgpack.decode(data, type=type_)


def pack(data: bytes) -> bytes:
    """Compress with zstd at level 3."""
    return zstandard.ZstdCompressor(level=3, write_content_size=True).compress(data)


def unpack(data: bytes, max_bytes: int = 256 * 1024 * 1024) -> bytes:
    """Undo :func:`pack`. Raises ``zstandard.ZstdError`` on damage or beyond ``max_bytes``."""
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=max_bytes)
