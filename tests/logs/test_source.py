"""Any file is text in pieces, or one clear error."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma

import pytest

from kvroom.errors import UsageError
from kvroom.logs.read import read_log
from kvroom.logs.source import PIECE, pieces

LINE = "INFO 07-08 22:40:03 [gpu_worker.py:508] Available KV cache memory: 37.99 GiB\n"


def joined(data: bytes) -> bytes:
    return b"".join(pieces(io.BytesIO(data)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_packed_text_is_unpacked(pack) -> None:
    assert joined(pack(LINE.encode() * 1000)) == LINE.encode() * 1000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_what_windows_writes(encoding: str) -> None:
    log = read_log(io.BytesIO((LINE * 2).replace("\n", "\r\n").encode(encoding)))

    assert log.readings[0].measured["available"].printed == "37.99"


def test_pieces_end_at_lines() -> None:
    parts = list(pieces(io.BytesIO(LINE.encode() * 100_000)))

    assert len(parts) > 3
    assert all(part.endswith(b"\n") for part in parts)


def test_a_line_without_an_end_is_cut() -> None:
    parts = list(pieces(io.BytesIO(b"x" * (5 * PIECE))))

    assert max(map(len, parts)) <= 2 * PIECE
    assert sum(map(len, parts)) == 5 * PIECE


@pytest.mark.parametrize("data", [bytes(range(9)) * 500, b"\x7fELF\x02\x01\x01" + bytes(4000)])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="no text"):
        joined(data)


def test_a_damaged_archive_is_one_error() -> None:
    with pytest.raises(UsageError, match="damaged"):
        joined(gzip.compress(LINE.encode() * 1000)[:60])


def test_invalid_utf_8_is_read_around() -> None:
    log = read_log(io.BytesIO(b"\xff\xfe\xfd garbage \xe9\n"[2:] + LINE.encode()))

    assert log.readings[0].measured["available"].printed == "37.99"
