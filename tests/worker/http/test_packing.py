"""Large bodies are gzipped while they are decoded: the same bytes, never all in memory at once."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from greencrawl.schema.records import Fetched
from greencrawl.worker.http.codings import Decoded, decode
from greencrawl.worker.http.packing import MAX_CAME_BYTES, packed

MEGABYTE = 1024 * 1024
NOISE = random.Random(7).randbytes(300_000)
BODY = (b"<url><loc>/%d</loc></url>" % 7) * 60_000 + NOISE


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def members(data: bytes) -> bytes:
    return b"".join(gzip.compress(data[at : at + 99_999]) for at in range(0, len(data), 99_999))


ENCODED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "plain": ("", bytes),
    "unknown": ("utf-8", bytes),
    "gzip": ("gzip", gzip.compress),
    "members": ("x-gzip", lambda data: members(data[:1_000_000]) + b"padding"),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare_deflate),
    "br": ("br", lambda data: brotli.compress(data, quality=4)),
    "zstd": ("zstd", zstandard.compress),
    "two": ("gzip, br", lambda data: brotli.compress(gzip.compress(data), quality=2)),
    "text that is said to be gzip": ("gzip", lambda _: b"<urlset>" * 200_000),
}


def whole(found: Decoded) -> Decoded:
    """Unpack a body, if it was packed."""
    if not found.packed:
        return found._replace(cpu=0.0)
    body = gzip.decompress(found.body)
    assert len(body) == found.packed
    return found._replace(body=body, cpu=0.0, packed=0)


@pytest.mark.parametrize("coding", ENCODED)
@pytest.mark.parametrize("cap", [1_200_000, 9 * MEGABYTE], ids=["cut", "whole"])
def test_packed_body_equals_the_decoded_body(coding: str, cap: int) -> None:
    header, encode = ENCODED[coding]
    data = encode(BODY)
    found = packed(bytearray(data), header, cap)
    assert whole(found) == decode(data, header, cap)._replace(cpu=0.0)
    assert bool(found.packed) == (coding != "two")
    if coding in ("gzip", "br"):
        assert found.cpu > 0


@pytest.mark.parametrize("coding", [c for c in ENCODED if c not in ("two",)])
def test_incomplete_body_is_kept_as_far_as_it_came(coding: str) -> None:
    header, encode = ENCODED[coding]
    data = encode(BODY)
    half = data[: len(data) // 2]
    found = whole(packed(half, header, 9 * MEGABYTE, complete=False))
    wanted = decode(half, header, 9 * MEGABYTE, complete=False)
    assert (found.truncated, found.error) == (wanted.truncated, wanted.error)
    assert len(found.body) > len(wanted.body) - 128 * 1024
    assert found.body.startswith(wanted.body) or wanted.body.startswith(found.body)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "bare deflate", "br", "zstd"])
def test_packing_reports_broken_and_truncated_bodies_as_decoding_does(coding: str) -> None:
    header, encode = ENCODED[coding]
    data = encode(BODY)
    early = data[: len(data) * 3 // 4]
    broken = data[:2000] + bytes(500) + data[2500:]
    for one in (early, broken):
        found, wanted = packed(one, header, 9 * MEGABYTE), decode(one, header, 9 * MEGABYTE)
        assert wanted.error or one is broken  # not all encodings have a checksum
        assert found.error.partition(":")[0] == wanted.error.partition(":")[0]


def test_packed_body_is_empty_if_nothing_could_be_decoded() -> None:
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * 5000  # the gzip data ends within its file name
    found = packed(named, "gzip", 10**6, complete=False)
    assert (found.body, found.packed) == (decode(named, "gzip", 10**6, complete=False).body, 0)
    assert found.body == b""


def test_body_that_is_a_gzip_file_is_kept_unchanged() -> None:
    inner = gzip.compress(BODY)
    for data, header in (
        (inner, ""),
        (gzip.compress(inner), "gzip"),
        (zlib.compress(inner), "deflate"),
    ):
        found = packed(data, header, 9 * MEGABYTE)
        assert (found.body, found.packed, found.error) == (inner, 0, "")


@pytest.mark.parametrize("coding", ["plain", "gzip", "deflate", "br", "zstd"])
def test_memory_for_packing_does_not_grow_with_the_body(coding: str) -> None:
    header, encode = ENCODED[coding]
    data = encode(bytes(50 * MEGABYTE))
    tracemalloc.start()
    try:
        found = packed(data, header, 50 * MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.packed == 50 * MEGABYTE
    assert len(found.body) < MEGABYTE
    assert peak < 12 * MEGABYTE


def test_body_that_is_not_packed_is_decoded_up_to_a_bound() -> None:
    inner = gzip.compress(bytes(MEGABYTE))
    found = packed(gzip.compress(inner + bytes(40 * MEGABYTE)), "gzip", 50 * MEGABYTE)
    assert (len(found.body), found.truncated, found.packed) == (MAX_CAME_BYTES, True, 0)


def test_a_packed_body_is_unpacked_up_to_the_given_size() -> None:
    found = packed(BODY, "", 9 * MEGABYTE)
    answer = Fetched("", 200, {}, found.body, packed=found.packed)
    answer.unpack(1000)
    assert (answer.body, answer.truncated, answer.packed) == (BODY[:1000], True, 0)
    answer = Fetched("", 200, {}, found.body, packed=found.packed)
    answer.unpack(9 * MEGABYTE)
    assert (answer.body, answer.truncated, answer.packed) == (BODY, False, 0)
