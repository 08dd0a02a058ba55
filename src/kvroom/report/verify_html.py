"""A verification as one HTML page with plots: no script, no style or picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from kvroom.redaction import clean
from kvroom.report.plot import Line, plot
from kvroom.report.verify_text import about, cells, show_targets, verdict
from kvroom.server.figures import Spread
from kvroom.server.limits import Targets
from kvroom.server.ramp import Ramp
from kvroom.server.step import Step
from kvroom.server.verify import Verification

_HEAD = (
    "at once", "served", "failed", "TTFT ms", "p95", "TPOT ms", "p95", "ITL ms p99", "tokens/s", "running", "waiting",
    "KV use", "preempted", "prefix hits",
)  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --rule: #d9dbe0; --page: #fff; --good: #18794e;
  --bad: #c62a2f; --s0: #1f6feb; --s1: #c4570a; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #a8adb7; --rule: #3a3f47; --page: #16181b;
  --good: #4cc38a; --bad: #ff8b8b; --s0: #6cb0ff; --s1: #ffa057; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.holds { color: var(--good); } .fails { color: var(--bad); } .unknown, .why, .tick { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
td:first-child { white-space: nowrap; }
.figures td, .figures th { text-align: right; white-space: nowrap; overflow-wrap: normal; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem 2rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
.key { font-weight: 400; color: var(--soft); margin-left: .8rem; }
.key i { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .3rem; }
svg { width: 100%; height: auto; } .tick { fill: var(--soft); font-size: 11px; } .grid { stroke: var(--rule); }
.line { fill: none; stroke-width: 2; } .target { stroke: var(--bad); stroke-dasharray: 5 4; }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); }
.dot.s0, .key .s0 { fill: var(--s0); background: var(--s0); }
.dot.s1, .key .s1 { fill: var(--s1); background: var(--s1); }
"""


def verification_page(found: Verification) -> str:
    """The page; whoever wrote a part of it, nothing in it is taken for HTML."""
    title = f"kvroom verify {found.url}"
    body = "\n".join(_body(found))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _body(found: Verification) -> Iterator[str]:
    release = f", vLLM {found.release}" if found.release else ""
    yield f"<h1>{_text(found.url)}{release}{_text(f': {found.model}' if found.model else '')}</h1>"
    said, _ = verdict(found)
    yield f'<p class="{"holds" if found.holds else "fails"}"><strong>{_text(said)}</strong></p>'
    yield "<h2>Checks</h2><table>"
    for check in found.checks:
        notes = [check.why, f"→ {check.cure}" if check.cure and check.held != "holds" else ""]
        more = "".join(f'<div class="why">{_text(note)}</div>' for note in notes if note)
        columns = (_text(check.name), f"{_text(check.seen)}{more}")
        yield (
            f'<tr><td class="{check.held}">{check.held}</td>'
            + "".join(f"<td>{cell}</td>" for cell in columns)
            + "</tr>"
        )
    yield "</table>"
    if found.ramp is not None and found.ramp.steps and found.workload is not None:
        wanted = show_targets(found.targets)
        kind = "chat" if found.chat else "completions"
        yield f"<h2>Load: {_text(about(found.workload))}, {kind}</h2>"
        yield f"<p>Target: {_text(wanted)}</p>" if wanted else ""
        yield from _figures(found.ramp.steps)
        yield from _plots(found.ramp.steps, found.targets)
    if found.ramp is not None:
        yield from _limit(found.ramp)
    if found.notes:
        yield "<h2>Notes</h2><ul>" + "".join(f"<li>{_text(note)}</li>" for note in found.notes) + "</ul>"


def _figures(steps: Sequence[Step]) -> Iterator[str]:
    yield '<div class="scroll"><table class="figures"><tr>' + "".join(f"<th>{name}</th>" for name in _HEAD) + "</tr>"
    for step in steps:
        yield "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells(step)) + "</tr>"
    yield "</table></div>"
    yield (
        '<p class="why">TTFT: time to the first token. TPOT: (latency - TTFT) / (output tokens - 1). ITL: time between '
        "the chunks of an answer. Medians, and the percentiles named.</p>"
    )


def _plots(steps: Sequence[Step], targets: Targets) -> Iterator[str]:
    places = [cells(step)[0] for step in steps]
    along = "requests at once"
    use = [None if step.kv_use is None else 100 * step.kv_use for step in steps]
    drawn = (
        ("Output tokens a second", (Line("output tokens/s", tuple(step.output_rate for step in steps)),), None),
        ("Time to the first token, ms", _two([step.ttft for step in steps]), targets.ttft),
        ("Time per output token, ms", _two([step.tpot for step in steps]), targets.tpot),
        ("KV cache in use, %", (Line("KV cache in use, %", tuple(use)),), None),
    )
    yield '<div class="plots">'
    for title, lines, target in drawn:
        names = [*(line.name for line in lines)] if len(lines) > 1 else []
        keys = "".join(f'<span class="key"><i class="s{i}"></i>{name}</span>' for i, name in enumerate(names))
        keys += '<span class="key">dashed: target</span>' if target is not None else ""
        picture = plot(title, places, along, lines, None if target is None else target * 1000)
        yield f"<figure><figcaption>{title}{keys}</figcaption>\n{picture}</figure>"
    yield "</div>"


def _two(spreads: Sequence[Spread | None]) -> tuple[Line, Line]:
    return (
        Line("median", tuple(None if each is None else each.median * 1000 for each in spreads)),
        Line("95th percentile", tuple(None if each is None else each.at(95) * 1000 for each in spreads)),
    )


def _limit(ramp: Ramp) -> Iterator[str]:
    limit = ramp.limit
    at = f" at {limit.concurrency} at once" if limit.concurrency else ""
    first = f"First limit: {limit.cause}{at}" if limit.of_server else "No limit of the server was met"
    yield f"<h2>{first}</h2><p>{_text(limit.evidence)}</p>"
    items = []
    for change in limit.changes:
        flags = f"<code>{_text(' '.join(change.flags))}</code>: " if change.flags else ""
        price = f"; price: {_text(change.price)}" if change.price else ""
        items.append(f"<li>{flags}{_text(change.why)}{price}</li>")
    if items:
        yield f"<p>What to change, one at a time:</p><ol>{''.join(items)}</ol>"


def _text(text: str) -> str:
    return escape(clean(text))
