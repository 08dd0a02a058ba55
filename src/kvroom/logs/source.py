"""A log as pieces of UTF-8 that end at a line: any file or stream, compressed or not, of any size."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

from kvroom.errors import UsageError

PIECE = 1 << 20
"""Bytes that are read at once; a longer line is cut."""
_PACKED: dict[bytes, Callable[[BinaryIO, str], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_BINARY = 0.02
"""Share of bytes that no text has, above which a file is none."""


def pieces(stream: BinaryIO) -> Iterator[bytes]:
    """``stream`` in pieces of about a megabyte that end at a line where there is one.

    Raises UsageError for what is no text, and for a compressed file that is damaged.
    """
    head = stream.read(PIECE)
    for magic, opened in _PACKED.items():
        if head.startswith(magic):
            unpacked = cast("BinaryIO", opened(cast("BinaryIO", _Joined(head, stream)), "rb"))
            yield from _unpacked(unpacked)
            return
    for mark, name in _WIDE.items():
        if head.startswith(mark):
            yield from _by_line(_recoded(head[2:], stream, name))
            return
    _check_text(head)
    yield from _by_line(_rest(head.removeprefix(codecs.BOM_UTF8), stream))


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    try:
        head = stream.read(PIECE)
        _check_text(head)
        yield from _by_line(_rest(head, stream))
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UsageError(f"The compressed log is damaged: {error}.", "Unpack it and give the text.") from None


def _rest(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while head:
        yield head
        head = stream.read(PIECE)


def _recoded(head: bytes, stream: BinaryIO, name: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(name)("replace")
    for part in _rest(head, stream):
        yield decoder.decode(part).encode("utf-8", "replace")


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
    sample = head[:8192]
    odd = sum(byte < 9 or 13 < byte < 27 for byte in sample)
    if odd > _BINARY * len(sample):
        raise UsageError("This is no text.", "Give the text that the server printed, as it is or packed with gzip.")


class _Joined(io.RawIOBase):
    """A stream with the bytes that were read ahead put back."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        super().__init__()
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not self._head:
            return self._stream.read(size)
        taken, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
        return taken if size >= 0 else taken + self._stream.read()
