"""The KV cache of a model as one page that needs no network: the table, the kinds of layers, the plot."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kvroom.redaction import clean
from kvroom.report.kv_chart import svg_chart
from kvroom.report.kv_text import kv_chart, kv_title, show_token_bytes
from kvroom.sizing.kv import KvTable
from kvroom.units import show_bytes

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#111827;"
    "background:#fff}table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .75rem;text-align:right;"
    "border-bottom:1px solid #e5e7eb}th{font-weight:600}.over{color:#b91c1c}.dim{color:#6b7280}svg{max-width:100%}"
)


def kv_page(table: KvTable, counts: Sequence[int], notes: Sequence[str]) -> str:
    """A whole HTML document."""
    title = escape(clean(kv_title(table)))
    body = [f"<h1>{title}</h1>", f"<p>{escape(_summary(table))}</p>", _table(table, counts), _kinds(table)]
    if len(table.rows) > 1:
        body.append(kv_svg(table, counts))
    body += [f'<p class="dim">{escape(clean(note))}</p>' for note in notes]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def kv_svg(table: KvTable, counts: Sequence[int]) -> str:
    """The plot alone."""
    return svg_chart(kv_chart(table, counts), clean(kv_title(table)))


def _summary(table: KvTable) -> str:
    pool = f" Pool: {show_bytes(table.pool_bytes)} a GPU ({table.pool_why})." if table.pool_bytes is not None else ""
    return f"{show_token_bytes(table.token_bytes)} on each GPU for a further token of a long sequence.{pool}"


def _table(table: KvTable, counts: Sequence[int]) -> str:
    heads = ["context", "blocks", *(f"{count:,} at once" for count in counts)]
    heads += ["the pool holds"] if table.pool_bytes is not None else []
    rows = ["<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"]
    for row in table.rows:
        cells = [f"<td>{row.length:,}</td><td>{row.blocks:,}</td>"]
        for count in counts:
            over = ' class="over"' if row.sequences is not None and count > row.sequences else ""
            cells.append(f"<td{over}>{show_bytes(row.batch_bytes(count))}</td>")
        if row.concurrency is not None:
            cells.append(f"<td>{row.sequences:,} ({row.concurrency:.2f})</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _kinds(table: KvTable) -> str:
    last = table.rows[-1]
    rows = [f"<tr><th>kind of layer</th><th>layers</th><th>one sequence of {last.length:,}</th></tr>"]
    rows += [
        f"<tr><td>{kind.kind}</td><td>{kind.layers}</td><td>{show_bytes(kind.n_bytes)}</td></tr>" for kind in last.kinds
    ]
    return f"<table>{''.join(rows)}</table>"
