"""A run of ``tune`` as one HTML page: the causal table (step, effect, verdict) and plots, with nothing to load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from kvroom.redaction import clean
from kvroom.report.command import show_command
from kvroom.report.trials import outcome, release_of
from kvroom.trials.changes import shown
from kvroom.trials.store import Run
from kvroom.trials.trial import Trial
from kvroom.units import show_bytes

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #d8dee4; vertical-align: top }
th { font-weight: 600 } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
tr.kept { background: #eaf6ec } tr.failed, tr.skipped { background: #fbeceb } small { color: #57606a }
pre { background: #f3f5f7; padding: .8rem; overflow-x: auto } .plots { display: flex; flex-wrap: wrap; gap: 1.5rem }
svg text { font: 11px system-ui, sans-serif; fill: #57606a }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 520, 230, 62, 34
_PLOTS: tuple[tuple[str, str, Callable[[Trial], float | None], Callable[[float], str]], ...] = (
    ("Output tokens a second", "", lambda t: t.figures.throughput if t.figures else None, lambda v: f"{v:,.0f}"),
    ("Available KV tokens", "", lambda t: t.figures.kv_tokens if t.figures else None, lambda v: f"{v:,.0f}"),
    ("Time to first token, seconds", "", lambda t: t.figures.ttft if t.figures else None, lambda v: f"{v:.3g}"),
    (
        "Peak memory",
        "",
        lambda t: t.figures.peak.used_bytes if t.figures and t.figures.peak else None,
        show_bytes,
    ),
)


def trials_html(run: Run, trials: Sequence[Trial]) -> str:
    """The page; every text in it is escaped and without secrets."""
    ending: dict[str, Any] = dict(run.ending or {})
    said = [*ending.get("why", ()), *(f"Margin: {each}." for each in ending.get("margin", ()))]
    command = show_command(ending["command"]) if ending.get("command") else ""
    title = f"kvroom tune: {run.asked.get('goal')}"
    head = "Best command" if ending.get("met") else "Nearest command"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p><small>run {_text(run.id)}, {_text(run.created[:16])} UTC, vLLM {_text(run.asked.get('vllm_version'))}, "
        f"{_text(show_command(run.asked.get('command', ())))}</small></p>",
        "".join(f"<p>{_text(each)}</p>" for each in said) or "<p>The run has not ended.</p>",
        f"<h2>{head}</h2><pre>{_text(command)}</pre>" if command else "",
        f"<h2>What was changed, and what came of it</h2>{_table(run, trials)}",
        f'<h2>Figures by trial</h2><div class="plots">{"".join(_plots(trials))}</div>',
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return escape(clean(str(value)))


def _table(run: Run, trials: Sequence[Trial]) -> str:
    release = release_of(run)
    names = ("#", "changed", "why", "result", "KV tokens", "predicted", "first token", "tokens/s", "peak")
    head = "".join(
        f'<th class="n">{name}</th>' if at == 0 or at > 3 else f"<th>{name}</th>" for at, name in enumerate(names)
    )
    rows = []
    before: Trial | None = None
    for trial in trials:
        step = shown(trial.proposal.step, release) or "as given"
        result = outcome(trial) + (f": {trial.reason}" if trial.reason and not trial.kept else "")
        words = (step, trial.proposal.why, result)
        cells = "".join(f"<td>{_text(word)}</td>" for word in words)
        numbers = "".join(f'<td class="n">{_text(cell)}</td>' for cell in _numbers(trial, before))
        kind = "kept" if trial.kept else str(trial.state)
        rows.append(f'<tr class="{kind}"><td class="n">{trial.number}</td>{cells}{numbers}</tr>')
        before = trial if trial.kept else before
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _numbers(trial: Trial, before: Trial | None) -> tuple[str, ...]:
    """The figures, with what the step moved against the trial that it builds on."""
    figures = trial.figures
    predicted = f"{trial.forecast.kv_tokens:,}" if trial.forecast.kv_tokens else ""
    if figures is None:
        return "", predicted, "", "", ""
    then = before.figures if before else None
    return (
        f"{figures.kv_tokens or 0:,}{_moved(figures.kv_tokens, then.kv_tokens if then else None)}",
        predicted,
        f"{figures.ttft:.3g} s{_moved(figures.ttft, then.ttft if then else None)}" if figures.ttft else "",
        f"{figures.throughput:.1f}{_moved(figures.throughput, then.throughput if then else None)}",
        f"{show_bytes(figures.peak.used_bytes)} ({figures.peak.share:.0%})" if figures.peak else "",
    )


def _moved(now: float | None, then: float | None) -> str:
    if not now or not then or abs(now / then - 1) < 0.005:
        return ""
    return f" ({now / then - 1:+.0%})"


def _plots(trials: Sequence[Trial]) -> list[str]:
    drawn = []
    for title, _, value, label in _PLOTS:
        points = [(trial, found) for trial in trials if (found := value(trial)) is not None]
        if points:
            drawn.append(_plot(title, points, label))
    return drawn


def _plot(title: str, points: Sequence[tuple[Trial, float]], label: Callable[[float], str]) -> str:
    """A bar a trial, from zero; what is kept is dark."""
    most = max(value for _, value in points) or 1.0
    room = (_WIDTH - _LEFT) / len(points)
    bars = []
    for at, (trial, value) in enumerate(points):
        height = (_HEIGHT - _BOTTOM - 24) * value / most
        x, y = _LEFT + at * room, _HEIGHT - _BOTTOM - height
        colour = "#1f7a3d" if trial.kept else "#aab4be"
        bars.append(
            f'<rect x="{x + room * 0.15:.1f}" y="{y:.1f}" width="{room * 0.7:.1f}" height="{height:.1f}"'
            f' fill="{colour}">'
            f"<title>trial {trial.number}: {_text(label(value))}</title></rect>"
            f'<text x="{x + room / 2:.1f}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle">{trial.number}</text>'
        )
    axis = (
        f'<text x="{_LEFT - 6}" y="32" text-anchor="end">{_text(label(most))}</text>'
        f'<text x="{_LEFT - 6}" y="{_HEIGHT - _BOTTOM}" text-anchor="end">0</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{_HEIGHT - _BOTTOM}" y2="{_HEIGHT - _BOTTOM}" stroke="#8b949e"/>'
    )
    return (
        f'<figure><svg role="img" aria-label="{_text(title)}" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<text x="{_LEFT}" y="14">{_text(title)}</text>{axis}{"".join(bars)}</svg></figure>'
    )
