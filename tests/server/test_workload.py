from __future__ import annotations

from pathlib import Path

import pytest

from kvroom.errors import UsageError
from kvroom.server.workload import Job, fixed, read_trace


def trace(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        '{"input_len": 10, "output_len": 5, "arrival_time": 1.0}\n\n'
        '{"input_len": 20, "output_len": 6, "arrival_time": 2.5}\n',
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,10,5\n2023-11-16 18:15:48.1805900,20,6\n",
        '{"timestamp": 27482, "input_length": 10, "output_length": 5, "hash_ids": [1]}\n'
        '{"timestamp": 28982, "input_length": 20, "output_length": 6, "hash_ids": [1, 2]}\n',
        "Timestamp,Model,Request tokens,Response tokens,Total tokens\n6.5,GPT-4,20,6,26\n5,GPT-4,10,5,15\n",
    ],
    ids=["own", "azure", "mooncake", "burstgpt, unordered"],
)
def test_the_traces_that_there_are(tmp_path: Path, text: str) -> None:
    workload = read_trace(trace(tmp_path, text))

    assert workload.jobs == (Job(10, 5, 0.0), Job(20, 6, 1.5))
    assert workload.timed


def test_without_times_the_order_is_kept(tmp_path: Path) -> None:
    workload = read_trace(trace(tmp_path, "input_len,output_len\n30,0\n10,5\n"))

    assert workload.jobs == (Job(30, 1), Job(10, 5))
    assert not workload.timed
    assert workload.take(3, 1) == (Job(10, 5), Job(30, 1), Job(10, 5))


HEAD = "input_len,output_len\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        HEAD,
        '{"input_len": 1}',
        '{"input_len": true, "output_len": 1}',
        "[1, 2]",
        '{"a": 1}\nnot json',
        f"{HEAD}-1,5\n",
        f"{HEAD}1.5,5\n",
        f"{HEAD}nan,5\n",
        f"{HEAD}0,5\n",
        "input_len,output_len,arrival_time\n1,5,soon\n",
        '{"input_len": 1e300, "output_len": 1}',
    ],
)
def test_a_trace_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        read_trace(trace(tmp_path, text))


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_trace_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        read_trace(tmp_path / name)


def test_what_is_longer_than_the_server_takes_is_left_out(tmp_path: Path) -> None:
    workload = read_trace(trace(tmp_path, "input_len,output_len\n30,10\n100,5\n")).within(40)

    assert (workload.jobs, workload.left_out) == ((Job(30, 10),), 1)
    with pytest.raises(UsageError, match="max_model_len 14"):
        fixed(10, 5).within(14)
