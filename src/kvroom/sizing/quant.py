"""What other ways to store the weights would bring: bytes, room for KV blocks, and GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvroom.errors import EngineError, UsageError
from kvroom.ledger.predict import Prediction, Setup, predict
from kvroom.ledger.verdict import Status
from kvroom.models.quantization import Quantization
from kvroom.models.schemes import named_scheme
from kvroom.models.shape import ModelShape
from kvroom.plans.request import Request
from kvroom.sizing.judge import Judge, room_of
from kvroom.sizing.kinds import StoredAs, kinds
from kvroom.sizing.layouts import counts, layouts
from kvroom.sizing.problem import stored_as

PLAIN = "16 bit"
NATIVE = "as published"
_MOST = 64
_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class QuantRow:
    """One way to store the weights under the launch asked about."""

    name: str
    label: str
    runs: str
    """``native``, ``weight-only``, or empty where it does not run."""
    why_not: str
    weights_bytes: int
    """On one GPU after loading."""
    available_bytes: int
    """What is left for KV blocks on one GPU; may be negative."""
    tokens: int
    """Of the pool; 0 where it does not start."""
    longest: int
    """The longest context of one request."""
    status: Status
    gpus: int | None
    """The fewest such GPUs that hold the context and the requests at once; None within 64."""
    caveat: str
    source: str
    basis: str = "computed"


@dataclass(frozen=True, slots=True)
class QuantTable:
    """All rows, the checkpoint as it is first."""

    setup: Setup
    context: int
    concurrency: int
    rows: tuple[QuantRow, ...]

    def saved(self, row: QuantRow) -> int | None:
        """GPUs that ``row`` saves against the first row; None where one of them is not known."""
        first = self.rows[0].gpus
        return None if first is None or row.gpus is None or not row.runs else first - row.gpus


def quant_table(setup: Setup, request: Request, *, context: int | None = None, concurrency: int = 1) -> QuantTable:
    """``setup``'s model stored in each known way, on its card and release.

    ``context`` (without one: max_model_len) and ``concurrency`` decide the number of GPUs. Raises EngineError where
    vLLM refuses the launch whatever the weights, UsageError for a context that the model does not take.
    """
    if setup.args.quantization:
        raise UsageError("--quantization is what is compared.", "Leave it out.")
    first = predict(setup)
    if first.settings is None:
        raise EngineError(f"vLLM {setup.release} refuses this launch: {first.verdict.message}")
    limit = first.settings.derived_max_model_len
    length = context or first.settings.max_model_len
    if length > max(limit, first.settings.max_model_len):
        raise UsageError(f"A context of {length:,} tokens is longer than the model takes ({limit:,}).")
    judge = Judge(setup.release, setup.without, setup.draft)
    quantized = setup.shape.quantization
    method = quantized.method if quantized is not None else "16 bit"
    own = next((kind for kind in kinds() if quantized is not None and _is(quantized, kind)), None)
    row = _row(setup, judge, length, concurrency, NATIVE if quantized else PLAIN, f"{method}, as published", first)
    rows = [row if own is None or not row.runs else _with_kind(row, own, setup)]
    if quantized is not None:
        plain = replace(setup.shape, quantization=None, checkpoint_bytes=None, checkpoint_bytes_by_dtype=())
        other = replace(setup, shape=plain)
        rows.append(_row(other, judge, length, concurrency, PLAIN, "16 bit, if there is such a checkpoint"))
    for kind in kinds():
        if kind is own or (kind.experts_only and not setup.shape.is_moe):
            continue
        other = _stored(setup, kind, request, plain=quantized is not None)
        row = _row(other, judge, length, concurrency, kind.name, kind.label)
        rows.append(_with_kind(row, kind, other))
    return QuantTable(setup, length, concurrency, tuple(rows))


def _is(quantization: Quantization, kind: StoredAs) -> bool:
    """Whether a checkpoint of ``quantization`` is stored as ``kind`` is."""
    method, scheme = named_scheme(kind.name)
    own = quantization.scheme
    same = own is not None and (own.format, own.bits) == (scheme.format, scheme.bits)
    return same and not kind.online and (method == quantization.method or scheme.format in {"mxfp4", "nvfp4", "fp8"})


def _stored(setup: Setup, kind: StoredAs, request: Request, *, plain: bool) -> Setup:
    """``setup`` with its weights stored as ``kind``; measurements of the old weights are dropped."""
    clean = replace(setup, measured={}, logged_args=None, traced=())
    if not kind.online:
        return replace(clean, shape=stored_as(setup, kind.name, request))
    shape: ModelShape = replace(setup.shape, quantization=None) if plain else setup.shape
    return replace(clean, shape=shape).with_args(quantization=kind.name)


def _with_kind(row: QuantRow, kind: StoredAs, setup: Setup) -> QuantRow:
    device = setup.machine.device
    why_not = kind.read_by(setup.release) or row.why_not
    runs = "" if why_not else kind.computed_on(device)
    found = replace(row, runs=runs, why_not=why_not, caveat=kind.caveat, source=kind.source)
    return found if runs else replace(found, gpus=None, tokens=0, longest=0, status=Status.FAILS)


def _row(
    setup: Setup,
    judge: Judge,
    length: int,
    concurrency: int,
    name: str,
    label: str,
    found: Prediction | None = None,
) -> QuantRow:
    found = found or predict(setup)
    ledger, pool = found.ledger, found.pool
    refused = found.ledger is None
    return QuantRow(
        name,
        label,
        "" if refused else "native",
        (found.verdict.message or "") if refused else "",
        ledger.weights.expected if ledger is not None else 0,
        ledger.available.expected if ledger is not None else 0,
        pool.tokens if pool is not None and pool.fits else 0,
        pool.longest_context if pool is not None else 0,
        found.verdict.status,
        None if refused else _fewest(setup, judge, length, concurrency),
        "",
        "",
        str(ledger.weights.basis) if ledger is not None else "",
    )


def _fewest(setup: Setup, judge: Judge, length: int, concurrency: int) -> int | None:
    """The fewest of the launch's cards that surely hold the need, spread as tensor parallel ranks, else stages."""
    for gpus in counts(_PER_NODE, _MOST):
        for way in sorted(layouts(setup.shape, gpus, _PER_NODE), key=lambda way: (way.pp, way.dp)):
            if way.dp > 1:
                continue
            args = replace(
                setup.args,
                max_model_len=length,
                max_num_seqs=setup.args.max_num_seqs or concurrency,
                tensor_parallel_size=way.tp,
                pipeline_parallel_size=way.pp,
                data_parallel_size=1,
                distributed_executor_backend="ray" if way.nodes > 1 else setup.args.distributed_executor_backend,
            )
            found = judge(setup.shape, args, setup.machine.device, gpus)
            if found.verdict.status is Status.FITS and room_of(found, length, concurrency).low >= concurrency:
                return gpus
    return None
