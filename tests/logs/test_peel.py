"""What stands before a message is taken off, whatever stacked it there."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.logs.peel import peel

RECORD = "INFO 07-08 22:40:03 [monitor.py:53] torch.compile took 16.27 s in total"
OUTER = [
    "",
    "2026-07-08T22:40:03.166684016Z ",
    "2026-07-08T22:40:03.166684016Z stdout F ",
    "[2025-03-10T15:07:20Z] ",
    "  | [2025-03-10T15:07:20Z] ",
    "vllm-1  | ",
    "Jul 08 22:40:03 box vllm[123]: ",
    "> ",
    ">> ",
    "[pod/vllm-7f9/server] ",
    "ERROR 2026-07-08T22:40:03.166684016Z [resource.labels.containerName: vllm] ",
    "(AsyncEngine pid=891625) ",
    "\x1b[36m(APIServer pid=7)\x1b[0;0m ",
    "2026-05-08 11:47:02.257 [Error] (Process) ",
    "(EngineCore_DP0 pid=9) [Stage-0] ",
]


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize(
    ("inner", "process"),
    [
        ("", None),
        ("(EngineCore_DP0 pid=370) ", "EngineCore_DP0"),
        ("(EngineCore_0 pid=1) (VllmWorker TP0 pid=2) ", "VllmWorker_TP0"),
        ("(VllmWorker rank=3 pid=90) ", "VllmWorker_3"),
        ("(RayWorkerWrapper pid=1463574, ip=192.0.2.60) ", "RayWorkerWrapper"),
        ("RayWorkerWrapper pid=1463574) ", "RayWorkerWrapper"),
    ],
)
def test_prefixes_of_every_kind(outer: str, inner: str, process: str | None) -> None:
    line = peel(outer + inner + RECORD, 7)

    assert line.text == "torch.compile took 16.27 s in total"
    assert (line.number, line.level, line.file) == (7, "INFO", "monitor.py")
    assert process is None or line.process == process


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("INFO 02-06 14:11:24 worker.py:266] weights", "weights"),
        ("INFO 01-01 00:00:00 [v1/engine/core.py:842] weights [repeated 30x across cluster]", "weights"),
        ("[rank0]: ValueError: no", "ValueError: no"),
        ("[vllm]: (Worker pid=9) ERROR 07-28 23:29:37 utils.py:2] ValueError: no", "ValueError: no"),
        ("│ ERROR 09-27 06:46:46 engine.py:157] ValueError: no", "ValueError: no"),
        ("^[[36m(RayWorker pid=9)^[[0m ValueError: no", "ValueError: no"),
        ("ESC[36m(RayWorker pid=9)ESC[0m ValueError: no", "ValueError: no"),
        ("> - 2024-06-22T20:16:34.700+00:00 ERROR 06-22 20:16:34 engine.py:5] ValueError: no", "ValueError: no"),
        ("2023-12-27 11:25:36 | ERROR | stderr | ValueError: no", "ValueError: no"),
        ("2024-12-20 15:18:19 - vllm.engine.metrics - INFO - # GPU blocks: 5", "# GPU blocks: 5"),
        (
            "decode-6c8f-vh88z vllm (EngineCore_DP0 pid=2) ERROR 10-27 22:25:12 [core.py:7] ValueError: no",
            "ValueError: no",
        ),
        ("[core.py:1] weights\r", "weights"),
        ('  File "x.py", line 3, in load_model', '  File "x.py", line 3, in load_model'),
        ("INFO:     Application startup complete.", "INFO:     Application startup complete."),
        ("", ""),
    ],
)
def test_records_of_every_age(raw: str, text: str) -> None:
    assert peel(raw).text == text


@pytest.mark.parametrize("key", ["log", "message", "msg", "textPayload", "MESSAGE"])
def test_json_lines(key: str) -> None:
    assert peel(json.dumps({key: RECORD + "\n", "stream": "stderr"})).text == "torch.compile took 16.27 s in total"


def test_times_of_one_year_can_be_subtracted() -> None:
    first, second = (peel(f"INFO {when} [a.py:1] x").time for when in ("02-28 23:59:59", "03-01 00:00:01"))

    assert first is not None
    assert second is not None
    assert second - first == 2


@given(st.text(max_size=300))
def test_any_text_is_a_line(raw: str) -> None:
    assert isinstance(peel(raw).text, str)
