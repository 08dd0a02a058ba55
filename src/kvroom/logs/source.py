"""A log as pieces of UTF-8 that end at a line: any file or stream, compressed or not, of any size."""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from kvroom.errors import UsageError

PIECE = 1 << 20
"""Bytes that are read at once; a longer line is cut."""
_MOST_MEMORY = 128 << 20
"""Bytes that a decoder may take: what the strongest usual setting of xz needs, and no more."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_SAMPLE = 8192
_BINARY = 0.02
"""Share of bytes that no text has, above which a file is none."""
_WIDE = 0.35
"""Share of bytes that are 0 in every other place, above which a text is UTF-16 without a mark."""


class _Decoder(Protocol):
    """What unpacks one stream; a file may hold several, one after the other."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gunzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_PACKED: tuple[tuple[re.Pattern[bytes], Callable[[], _Decoder]], ...] = (
    (re.compile(rb"\x1f\x8b"), _Gunzip),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    (re.compile(rb"\xfd7zXZ\x00"), lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY)),
)


def pieces(stream: BinaryIO) -> Iterator[bytes]:
    """``stream`` in pieces of about a megabyte that end at a line where there is one.

    Raises UsageError for what is no text, and for a compressed file that is damaged.
    """
    return _by_line(_as_utf8(_unpacked(_parts(stream))))


def _parts(stream: BinaryIO) -> Iterator[bytes]:
    while part := stream.read(PIECE):
        yield part


def _unpacked(parts: Iterator[bytes]) -> Iterator[bytes]:
    """``parts`` without their compression, where they have any."""
    head = next(parts, b"")
    decoder = next((new for magic, new in _PACKED if magic.match(head)), None)
    if decoder is None:
        yield from _with_head(head, parts)
        return
    try:
        yield from _unpacked_by(decoder, _with_head(head, parts))
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UsageError(f"The compressed log is damaged: {error}.", "Unpack it and give the text.") from None


def _unpacked_by(new: Callable[[], _Decoder], parts: Iterator[bytes]) -> Iterator[bytes]:
    """What the streams in ``parts`` hold, at most a piece at a time; zeros may stand between them."""
    decoder: _Decoder | None = None
    for part in parts:
        data = part
        while data or decoder is not None:
            if decoder is None:
                data = data.lstrip(b"\0")
                if not data:
                    break
                decoder = new()
            yield decoder.decompress(data, PIECE)
            data = b""
            if decoder.eof:
                data, decoder = decoder.unused_data, None
            elif decoder.needs_input:
                break
    if decoder is not None:
        raise EOFError("it ends in the middle")


def _with_head(head: bytes, parts: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from parts


def _as_utf8(parts: Iterator[bytes]) -> Iterator[bytes]:
    """``parts`` in UTF-8 whatever they were in; UsageError where they are no text."""
    head = next((part for part in parts if part), b"")
    mark, encoding = _encoding(head)
    text = _with_head(head[len(mark) :], parts)
    if encoding != "utf-8":
        text = _recoded(text, encoding)
    head = next(text, b"")
    _check_text(head)
    yield from _with_head(head, text)


def _encoding(head: bytes) -> tuple[bytes, str]:
    """The mark at the beginning of a text, empty without one, and its encoding."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return mark, name
    sample = head[:_SAMPLE]
    first, second = sample[::2].count(0), sample[1::2].count(0)
    if max(first, second) > _WIDE * len(sample) and min(first, second) <= _BINARY * len(sample):
        return b"", "utf-16-be" if first > second else "utf-16-le"
    return b"", "utf-8"


def _recoded(parts: Iterator[bytes], name: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(name)("replace")
    for part in parts:
        yield decoder.decode(part).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _by_line(parts: Iterator[bytes]) -> Iterator[bytes]:
    """``parts`` joined and cut anew at line ends; what is longer than a piece is cut where it is."""
    left = b""
    for part in parts:
        whole, newline, rest = part.rpartition(b"\n")
        if newline:
            yield left + whole + newline
            left = rest
        else:
            left += part
        if len(left) > PIECE:
            yield left
            left = b""
    if left:
        yield left


def _check_text(head: bytes) -> None:
    sample = head[:_SAMPLE]
    odd = sum(byte < 9 or 13 < byte < 27 for byte in sample)
    if odd > _BINARY * len(sample):
        raise UsageError("This is no text.", "Give the text that the server printed, as it is or packed with gzip.")
