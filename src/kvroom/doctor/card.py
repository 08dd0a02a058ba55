"""The card behind a log: as said, as named, or as its memory tells."""

from __future__ import annotations

from kvroom.devices.catalogue import find_by_driver_name, find_device, parts
from kvroom.devices.names import parse_gpu
from kvroom.doctor.command import without_remark
from kvroom.doctor.ticket import Ticket
from kvroom.errors import KvroomError
from kvroom.logs.reading import Reading
from kvroom.units import GIB, show_bytes

_NEAR = 0.012
"""How far two totals of one card may lie apart: drivers keep more or less of it."""
_FAR = 0.1
"""Totals further apart are not of one card."""


def card_of(reading: Reading, ticket: Ticket, notes: list[str]) -> tuple[str | None, str | None]:
    """The card with its count, and its memory where the log knows it; None where neither is known."""
    count = f"{reading.gpus}x " if reading.gpus and reading.gpus > 1 else ""
    total = reading.total_bytes
    if ticket.gpu is not None:
        for name in (ticket.gpu, without_remark(ticket.gpu)):
            try:
                device = find_device(parse_gpu(name)[0])
            except KvroomError as error:
                problem = error.problem
            else:
                if total and abs(device.total_bytes - total) > _FAR * device.total_bytes:
                    notes.append(
                        f"The log shows {show_bytes(total)} where {device.name} has {show_bytes(device.total_bytes)}."
                    )
                return name, ticket.gpu_memory or (f"{total / GIB:.3f}GiB" if total else None)
        notes.append(problem)
    if reading.device is not None:
        named = find_by_driver_name(reading.device, total)
        if named is not None and named.id:
            return f"{count}{named.name}", ticket.gpu_memory
    if total is None:
        return None, None
    near = [part for part in parts() if abs(part.device.total_bytes - total) <= _NEAR * total]
    near.sort(key=lambda part: (abs(part.device.total_bytes - total), not part.default))
    if not near:
        return None, None
    others = ", ".join(part.label for part in near[1:4])
    notes.append(
        f"The log names no card; its {show_bytes(total)} are those of {near[0].label}"
        + (f" (also of {others})." if others else ".")
    )
    return f"{count}{near[0].device.name}", None
