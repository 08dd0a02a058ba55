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


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("harm", ["cut", "bit", "tail"])
def test_any_damage_of_an_archive_is_one_error(pack, harm: str) -> None:
    data = bytearray(pack("".join(f"{n} {LINE}" for n in range(1000)).encode()))
    if harm == "cut":
        del data[-20:]
    elif harm == "bit":
        data[len(data) // 2] ^= 255
    else:
        data += b"garbage"

    with pytest.raises(UsageError, match="damaged"):
        joined(bytes(data))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_several_archives_in_one_file_are_one_text(pack) -> None:
    assert joined(pack(LINE.encode()) + pack(b"") + pack(LINE.encode())) == 2 * LINE.encode()


def test_an_archive_that_needs_very_much_memory_is_refused() -> None:
    strongest = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]

    with pytest.raises(UsageError, match="damaged"):
        joined(lzma.compress(LINE.encode(), filters=strongest))


def test_what_unpacks_to_very_much_comes_in_pieces() -> None:
    bomb = gzip.compress(b"x" * (20 * PIECE))

    assert max(map(len, pieces(io.BytesIO(bomb)))) <= 2 * PIECE


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_wide_characters_with_and_without_a_mark(encoding: str, pack) -> None:
    assert joined(pack((LINE * 500).encode(encoding))) == LINE.encode() * 500


@pytest.mark.parametrize("text", [b"BZhang started the server\n", b"BZh"])
def test_a_text_that_begins_like_an_archive(text: bytes) -> None:
    assert joined(text) == text
