"""Measured kernels beside the roofline: the same loads, run with steps that tables of kernel times give.

The tables are behind a Protocol; ``kvroom.throughput.aiconfigurator`` is the one that is packaged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kvroom.errors import short
from kvroom.ledger.predict import Prediction
from kvroom.redaction import clean
from kvroom.throughput.estimate import Engine, Estimate, engine_of

_GRAIN = 16
"""Tokens to which contexts are rounded: what is asked again need not be looked up again."""


class NotInTables(Exception):
    """The tables cannot tell; ``str(error)`` says what they do not know."""


class KernelTables(Protocol):
    """Kernel times of one launch on one card. Raises NotInTables for what was not measured."""

    @property
    def source(self) -> str:
        """Whose tables they are, with versions."""

    @property
    def caveat(self) -> str:
        """What misleads in these tables, empty where nothing is known to."""

    def decode(self, sequences: int, context: int) -> float:
        """Seconds of a step in which ``sequences`` of ``context`` tokens decode."""

    def mixed(self, chunk: int, prompt: int, sequences: int, context: int) -> float:
        """Seconds of a step that computes ``chunk`` tokens of prompts of ``prompt`` tokens as well."""


class TableReader(Protocol):
    """Opens tables. ``name`` tells people whose they are."""

    name: str

    def open(self, prediction: Prediction, *, offline: bool) -> KernelTables:
        """The tables of a launch; NotInTables where they do not know its card, model or storage."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One number of requests at once. Seconds; answer tokens a second of all replicas."""

    concurrency: int
    ttft: float
    tpot: float
    throughput: float


@dataclass(frozen=True, slots=True)
class Tabled:
    """What the tables say of the rows of an estimate."""

    source: str
    rows: tuple[TableRow, ...] = ()
    note: str = ""
    """Why there are no rows, or what misleads in them."""


@dataclass(frozen=True)
class TabledEngine(Engine):
    """One replica whose kernels take what the tables say."""

    tables: KernelTables | None = None
    _known: dict[tuple[int, int, int, int], float] = field(default_factory=dict, repr=False, compare=False)

    def step(self, decodes: int, context: float, chunk: int, before: float) -> float:
        """Seconds of one step; with pipeline stages the batch passes through them in as many parts."""
        parts = self.costs.pp
        asked = (-(-decodes // parts), _rounded(context), -(-chunk // parts), _rounded(before))
        if asked not in self._known:
            self._known[asked] = self._look_up(*asked)
        return self._known[asked]

    def _look_up(self, decodes: int, context: int, chunk: int, before: int) -> float:
        assert self.tables is not None
        if chunk:
            return self.tables.mixed(chunk, prompt_of(chunk, before), decodes, context)
        return self.tables.decode(decodes, context) if decodes else 0.0


def beside(found: Estimate, reader: TableReader, *, offline: bool) -> Tabled:
    """The rows of ``found`` by measured kernels, or why there are none."""
    source = reader.name
    try:
        tables = reader.open(found.prediction, offline=offline)
        source = tables.source
        engine = tabled(engine_of(found.prediction), tables)
        rows = []
        for row in found.rows:
            outcome = engine.closed(found.load, row.concurrency)
            rows.append(TableRow(row.concurrency, outcome.ttft, outcome.tpot, outcome.throughput))
    except NotInTables as error:
        return Tabled(source, note=short(clean(str(error)), 300))
    return Tabled(source, tuple(rows), tables.caveat)


def tabled(engine: Engine, tables: KernelTables) -> TabledEngine:
    """``engine`` with the kernels of ``tables``."""
    return TabledEngine(engine.costs, engine.card, engine.factors, engine.limits, tables=tables)


def prompt_of(chunk: int, before: int) -> int:
    """The length of equal prompts that look back at ``before`` tokens on average, of which ``chunk`` are computed.

    Prompts that fit into the chunk divide it, and of a longer one the chunk is a part: tables count whole ones.

    >>> prompt_of(2048, 512), prompt_of(2048, 1024), prompt_of(2048, 3072)
    (1024, 2048, 6144)
    """
    whole = max(1, 2 * before)
    if whole > chunk:
        return chunk * max(1, round(whole / chunk))
    return -(-chunk // max(1, round(chunk / whole)))


def _rounded(tokens: float) -> int:
    return max(1, round(tokens / _GRAIN) * _GRAIN)
