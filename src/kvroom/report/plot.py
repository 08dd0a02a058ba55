"""A line plot as SVG text: small, for one page, without a script or a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 420, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 16, 40


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its name, and a value for each place of the axis, None where there is none."""

    name: str
    values: tuple[float | None, ...]


def plot(title: str, places: Sequence[str], along: str, lines: Sequence[Line], target: float | None = None) -> str:
    """``lines`` over ``places``, which stand at equal distances, from 0 up; ``target`` is drawn as a dashed line."""
    known = [value for line in lines for value in line.values if value is not None]
    ticks = _ticks(max([*known, target or 0.0], default=0.0))
    top = ticks[-1] or 1.0
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(places) - 1, 1)
    xs = [_LEFT + (i + (0.5 if len(places) == 1 else 0)) * step for i in range(len(places))]

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in ticks:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
        )
    under = _HEIGHT - _BOTTOM + 16
    parts += [
        f'<text class="tick" x="{xs[i]:.1f}" y="{under}" text-anchor="middle">{escape(places[i])}</text>'
        for i in range(0, len(places), math.ceil(len(places) / 10))
    ]
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(along)}</text>')
    if target is not None:
        parts.append(
            f'<line class="target" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(target):.1f}" y2="{y(target):.1f}"/>'
        )
    for number, line in enumerate(lines):
        at = [(x, y(v), v, p) for x, v, p in zip(xs, line.values, places, strict=True) if v is not None]
        path = " ".join(f"{'L' if i else 'M'}{x:.1f} {height:.1f}" for i, (x, height, _, _) in enumerate(at))
        parts.append(f'<path class="line s{number}" d="{path}"/>')
        for x, height, value, place in at:
            told = escape(f"{line.name}, {place} {along}: {_number(value)}")
            parts.append(
                f'<circle class="dot s{number}" cx="{x:.1f}" cy="{height:.1f}" r="4"><title>{told}</title></circle>'
            )
    return "\n".join([*parts, "</svg>"])


def _ticks(largest: float) -> list[float]:
    """Round numbers from 0 to at least ``largest``.

    >>> _ticks(7.2)
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    if largest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest))
    size = next(part * power for part in (0.2, 0.5, 1.0, 2.0, 5.0) if largest / (part * power) <= 5)
    return [round(i * size, 12) for i in range(math.ceil(largest / size - 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
