"""Kernel times beside the roofline: the same loads and scheduler, and one note where the tables do not know."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kvroom.ledger.predict import Prediction
from kvroom.plans.make import plan
from kvroom.report.throughput_json import throughput_data
from kvroom.report.throughput_text import print_throughput
from kvroom.throughput.estimate import Estimate, Load, estimate
from kvroom.throughput.tables import KernelTables, NotInTables, Tabled, beside, prompt_of

SOURCE = "measured 1.0, vllm 0.24.0"


@dataclass(frozen=True, eq=False)
class Tables:
    """Kernels that take 10 ms to decode and a tenth of a millisecond for each token of a prompt."""

    source: str = SOURCE
    caveat: str = ""
    longest: int = 10**9

    def decode(self, sequences: int, context: int) -> float:
        if context > self.longest:
            raise NotInTables(f"no kernels beyond {self.longest} tokens")
        return 0.010

    def mixed(self, chunk: int, prompt: int, sequences: int, context: int) -> float:
        return 0.010 + 1e-4 * chunk


@dataclass(frozen=True)
class Reader:
    tables: Tables | None = None
    name: str = "measured 1.0"

    def open(self, prediction: Prediction, *, offline: bool) -> KernelTables:
        if self.tables is None:
            raise NotInTables("no kernels measured on \x1b[31mthis card")
        return self.tables


def _estimate(gpu: str = "H100", **flags: object) -> Estimate:
    found = plan(
        "Qwen/Qwen3-8B", gpu=gpu, offline=True, learned=False, vllm="0.28.0", max_model_len=16384, **flags
    ).prediction
    return estimate(found, Load(1000, 101), (1, 4))


FOUND = _estimate()


def test_the_rows_are_the_same_loads_with_the_times_of_the_tables() -> None:
    told = beside(FOUND, Reader(Tables()), offline=True)
    assert told.source == SOURCE
    assert [row.concurrency for row in told.rows] == [1, 4]
    alone, four = told.rows
    assert alone.tpot == pytest.approx(0.010)
    assert alone.ttft == pytest.approx(0.110)
    assert alone.throughput == pytest.approx(101 / (0.110 + 100 * 0.010), rel=0.02)
    assert 0.010 < four.tpot < 0.016  # the prompts of the others are in between: three of 100 ms in 100 tokens
    assert 2.5 * alone.throughput < four.throughput < 4 * alone.throughput


def test_pipeline_stages_pass_the_batch_on_in_parts() -> None:
    staged = beside(_estimate("2x H100", pipeline_parallel_size=2), Reader(Tables()), offline=True)
    assert staged.rows[0].ttft == pytest.approx(0.010 + 1e-4 * 500)


def test_what_the_tables_do_not_know_is_one_note() -> None:
    unknown = beside(FOUND, Reader(), offline=True)
    assert (unknown.source, unknown.rows) == ("measured 1.0", ())
    assert unknown.note.startswith("no kernels measured on")
    assert "\x1b" not in unknown.note
    midway = beside(FOUND, Reader(Tables(longest=1040)), offline=True)
    assert midway == Tabled(SOURCE, (), "no kernels beyond 1040 tokens")


@given(st.integers(1, 16384), st.integers(0, 65536))
def test_whole_prompts_hold_the_chunk_or_are_held_by_it(chunk: int, before: int) -> None:
    prompt, whole = prompt_of(chunk, before), max(1, 2 * before)
    assert 2 / 3 * whole <= prompt <= 1.5 * whole + 1
    count = -(-chunk // prompt)
    assert prompt % chunk == 0 if prompt >= chunk else count * prompt - chunk < count


def _text(tables: Tabled | None) -> str:
    written = io.StringIO()
    print_throughput(FOUND, "", (), Console(file=written, width=140), tables)
    return written.getvalue()


def test_both_are_shown_side_by_side() -> None:
    shown = _text(beside(FOUND, Reader(Tables(caveat="small batches mislead")), offline=True))
    header, alone = (line.split() for line in shown.splitlines()[3:5])
    assert header.count("kernels") == 3
    assert alone[:5] == ["1", *alone[1:3], "110", "ms"]
    assert "10.0 ms" in shown
    assert f"kernels: {SOURCE}: " in shown
    assert f"note: {SOURCE}: small batches mislead" in shown
    assert "kernels" not in _text(None)
    alone_text = _text(beside(FOUND, Reader(), offline=True))
    assert "note: no times by measured kernels: measured 1.0: no kernels measured on" in alone_text
    assert alone_text.splitlines()[:6] == _text(None).splitlines()[:6]


def test_the_data_have_both() -> None:
    data = throughput_data(FOUND, (), beside(FOUND, Reader(Tables()), offline=True))
    assert data["tables"]["source"] == SOURCE
    assert data["tables"]["rows"][0]["tpot"] == pytest.approx(0.010)
    assert throughput_data(FOUND, ())["tables"] is None
    assert throughput_data(FOUND, (), beside(FOUND, Reader(), offline=True))["tables"]["rows"] == []
