"""The KV cache against the context length, drawn with characters and as SVG: both axes in powers of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

MARKS = "ox+*#@"
_COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")
_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 150, 24, 52


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of the chart: a label and (tokens, bytes), tokens rising."""

    label: str
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves and the level that they may not pass."""

    curves: tuple[Curve, ...]
    limit: int | None
    limit_label: str = "pool"

    def span(self) -> tuple[float, float, float, float]:
        """The least and most of both axes, as powers of two that differ."""
        xs = [math.log2(x) for curve in self.curves for x, _ in curve.points]
        ys = [math.log2(max(y, 1)) for curve in self.curves for _, y in curve.points]
        if self.limit:
            ys.append(math.log2(self.limit))
        right, top = max(xs), math.ceil(max(ys))
        left, bottom = min(xs), math.floor(min(ys))
        return left, max(right, left + 1), bottom, max(top, bottom + 1)


def show_tokens(length: int) -> str:
    """``length`` for an axis: ``32k``, ``1M``, ``40960``."""
    for unit, name in ((1 << 20, "M"), (1 << 10, "k")):
        if length >= unit and length % unit == 0:
            return f"{length // unit}{name}"
    return str(length)


def _size(power: int) -> str:
    """A power of two bytes for an axis: ``4 MiB``, ``1 GiB``, ``0.5 GiB``."""
    for unit, name in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if power >= unit:
            return f"{2.0 ** (power - unit):g} {name}"
    return f"{2.0 ** (power - 10):g} KiB"


def text_chart(chart: Chart, width: int = 64, height: int = 14) -> list[str]:
    """The chart as lines of plain characters, with a legend."""
    left, right, bottom, top = chart.span()
    rows = [[" "] * width for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        column = round((x - left) / (right - left) * (width - 1))
        return column, height - 1 - round((y - bottom) / (top - bottom) * (height - 1))

    if chart.limit:
        _, row = place(left, math.log2(chart.limit))
        rows[row] = ["-"] * width
    for curve, mark in zip(chart.curves, MARKS, strict=False):
        for column, y in _between(curve.points, left, right, width):
            rows[place(left, y)[1]][column] = mark
    step = max(1, math.ceil((top - bottom) / (height / 3)))
    labels = {place(left, level)[1]: _size(level) for level in range(int(bottom), int(top) + 1, step)}
    lines = [f"{labels.get(number, ''):>10} |{''.join(row)}" for number, row in enumerate(rows)]
    lines.append(" " * 11 + "+" + "-" * width)
    lines.append(" " * 12 + _axis(chart, left, right, width))
    legend = [f"{mark} {curve.label}" for curve, mark in zip(chart.curves, MARKS, strict=False)]
    if chart.limit:
        legend.append(f"--- {chart.limit_label}")
    lines.append(" " * 12 + "   ".join(legend))
    return lines


def _between(points: Sequence[tuple[int, int]], left: float, right: float, width: int) -> list[tuple[int, float]]:
    """(column, log2 of bytes) for every column that the curve crosses."""
    found = []
    known = [(math.log2(x), math.log2(max(y, 1))) for x, y in points]
    for column in range(width):
        x = left + (right - left) * column / (width - 1)
        for (x1, y1), (x2, y2) in pairwise(known):
            if x1 - 1e-9 <= x <= x2 + 1e-9:
                found.append((column, y1 + (y2 - y1) * (x - x1) / (x2 - x1)))
                break
        else:
            if len(known) == 1 and column == 0:
                found.append((column, known[0][1]))
    return found


def _axis(chart: Chart, left: float, right: float, width: int) -> str:
    line = [" "] * (width + 8)
    end = 0
    for length in sorted({x for curve in chart.curves for x, _ in curve.points}):
        column = round((math.log2(length) - left) / (right - left) * (width - 1))
        text = show_tokens(length)
        if column >= end:
            line[column : column + len(text)] = text
            end = column + len(text) + 1
    return "".join(line).rstrip()


def svg_chart(chart: Chart, title: str) -> str:
    """The chart as one SVG element that needs nothing else."""
    left, right, bottom, top = chart.span()

    def across(x: float) -> float:
        return _LEFT + (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return _HEIGHT - _BOTTOM - (y - bottom) / (top - bottom) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12"><title>{escape(title)}</title>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for level in range(int(bottom), int(top) + 1, max(1, round((top - bottom) / 8))):
        y = down(level)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_size(level)}</text>')
    for length in sorted({x for curve in chart.curves for x, _ in curve.points}):
        x = across(math.log2(length))
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{show_tokens(length)}</text>'
        )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">tokens in a sequence</text>'
    )
    if chart.limit:
        y = down(math.log2(chart.limit))
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#111827" stroke-dasharray="6 4"/>')
        parts.append(f'<text x="{_LEFT + 8}" y="{y - 6:.1f}">{escape(chart.limit_label)}</text>')
    for number, curve in enumerate(chart.curves):
        colour = _COLOURS[number % len(_COLOURS)]
        spots = [(across(math.log2(x)), down(math.log2(max(y, 1)))) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        parts.append(
            f'<text x="{spots[-1][0] + 8:.1f}" y="{spots[-1][1] + 4:.1f}" fill="{colour}">{escape(curve.label)}</text>'
        )
    return "".join([*parts, "</svg>\n"])
