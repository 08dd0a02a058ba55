"""Commands and scripts to launches."""

from __future__ import annotations

import contextlib
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import UsageError
from kvroom.launches import Launch, read_command, read_words
from kvroom.launches.shell import LONGEST, read_commands


def one(text: str) -> Launch:
    (launch,) = read_command(text)
    return launch


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m -tp 2",
        "$ vllm serve m -tp 2",
        "/opt/venv/bin/vllm serve m -tp 2",
        "python -m vllm.entrypoints.openai.api_server m -tp 2",
        "python3.11 -u -X dev -m vllm.entrypoints.openai.api_server m -tp 2",
        "python3 -m vllm.entrypoints.api_server m -tp 2",
        "python -m vllm.entrypoints.cli.main serve m -tp 2",
        "python vllm/entrypoints/openai/api_server.py m -tp 2",
        "exec vllm serve m -tp 2",
        "nohup vllm serve m -tp 2 > server.log 2>&1 &",
        "sudo -E -u serve vllm serve m -tp 2",
        "timeout -k 5 600 vllm serve m -tp 2",
        "numactl --cpunodebind=0 vllm serve m -tp 2",
        "conda run -n serving vllm serve m -tp 2",
        "uv run --with vllm vllm serve m -tp 2",
        "bash -lc 'vllm serve m -tp 2'",
        'eval "vllm serve m -tp 2"',
        "cd /srv && vllm serve m -tp 2 || exit 1",
        "vllm serve m \\\n  -tp 2   # two cards",
        "vllm serve m \\\r\n  -tp 2\r\n",
        "if true; then vllm serve m -tp 2; fi",
        "start() { vllm serve m -tp 2; }",
        "(vllm serve m -tp 2 | tee log)",
        "vllm serve 'm' \"-tp\" $'2'",
        "TP=2; vllm serve m -tp $TP",
        "TP=2\nvllm serve ${MODEL:-m} -tp ${TP}",
        "ARGS='-tp 2'\nvllm serve m $ARGS",
        'ARGS=(m -tp 2)\nvllm serve "${ARGS[@]}"',
        'ARGS=(m)\nARGS+=(-tp 2)\nvllm serve "${ARGS[@]}"',
        "X='-tp'\nX+=' 2'\nvllm serve m $X",
        "cat > other.sh <<'EOF'\nvllm serve other\nEOF\nvllm serve m -tp 2",
    ],
)
def test_every_way_to_start_a_server_gives_the_same_words(text: str) -> None:
    assert one(text).tokens == ("m", "-tp", "2")


def test_environment_in_front_and_exported() -> None:
    launch = one("export VLLM_USE_V1=1\nHIDDEN=1\nVLLM_LOGGING_LEVEL=DEBUG env HF_HUB_OFFLINE=1 vllm serve m")
    assert launch.env == {"VLLM_USE_V1": "1", "VLLM_LOGGING_LEVEL": "DEBUG", "HF_HUB_OFFLINE": "1"}


def test_a_quoted_value_keeps_its_blanks_and_json() -> None:
    launch = one("""vllm serve m --hf-overrides '{"a": "b c"}' --served-model-name "x y" """)
    assert launch.tokens == ("m", "--hf-overrides", '{"a": "b c"}', "--served-model-name", "x y")


def test_several_launches_keep_their_lines() -> None:
    third = "python -m vllm.entrypoints.openai.api_server --model c"
    text = f"#!/bin/sh\nvllm serve a &\n\nvllm \\\n  serve b\n{third}\n"
    launches = read_command(text, source="run.sh")
    assert [(launch.line, launch.tokens) for launch in launches] == [
        (2, ("a",)),
        (4, ("b",)),
        (6, ("--model", "c")),
    ]
    assert {launch.source for launch in launches} == {"run.sh"}


def test_visible_devices_count_the_gpus() -> None:
    assert one("CUDA_VISIBLE_DEVICES=0,1,3 vllm serve m").gpu_hint == 3
    assert one("vllm serve m").gpu_hint is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("uvx vllm@0.28.0 serve m", "0.28.0"),
        ("uv run --with vllm==0.27.1 vllm serve m", "0.27.1"),
        ("pip install 'vllm[audio]==0.26.0'\nvllm serve m", "0.26.0"),
        ("vllm serve m", None),
    ],
)
def test_a_requirement_names_the_version(text: str, version: str | None) -> None:
    assert one(text).version_hint == version


def test_the_scripts_own_arguments_are_left_out_with_a_note() -> None:
    launch = one('vllm serve m "$@"')
    assert launch.tokens == ("m",)
    assert "arguments" in launch.notes[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("vllm serve $MODEL", "MODEL, which is not set"),
        ("x=1\nvllm serve m --max-model-len ${LEN}", "Line 2: --max-model-len needs the variable LEN"),
        ("vllm serve m --max-model-len $(nproc)", "the output of $(nproc)"),
        ("N=`nproc`\nvllm serve m -tp $N", "the output of `nproc`"),
        ("vllm serve m $EXTRA_ARGS", "EXTRA_ARGS"),
        ("for n in 1 2; do vllm serve m -tp $n; done", "n, which is not set"),
        ("echo ok\nvllm serve 'm", "Line 2: the quote ' is never closed"),
        ('vllm serve "m', 'the quote " is never closed'),
        ("vllm serve ${M", "${ is never closed"),
        ("ls -l", "starts no vLLM server"),
        ("", "starts no vLLM server"),
        ("vllm bench serve", "starts no vLLM server"),
        ("vllm serve m\0", "NUL"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_command(text)
    assert says in str(caught.value)


def test_an_unknown_that_moves_no_memory_may_stay() -> None:
    launch = one("vllm serve m --port $PORT --api-key ${KEY} --download-dir $HOME/x")
    assert launch.tokens[:3] == ("m", "--port", "$PORT")


def test_variables_may_be_given() -> None:
    (launch,) = read_command("vllm serve $MODEL", variables={"MODEL": "m"})
    assert launch.tokens == ("m",)


def test_words_are_not_expanded_again() -> None:
    (launch,) = read_words(["env", "A=1", "vllm", "serve", "m", "--chat-template", "$x 'y"])
    assert launch.tokens == ("m", "--chat-template", "$x 'y")
    assert launch.env == {"A": "1"}
    with pytest.raises(UsageError, match="starts no vLLM server"):
        read_words(["ls"])


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m " + "--foo x " * 1_300_000,
        "vllm serve " + "a" * 10_000_000,
        "vllm serve m " + "'x' " * (LONGEST // 4 - 10),
        "vllm serve '" + "x" * (LONGEST - 20),
        "$(" * (LONGEST // 2 - 1),
        "vllm serve m " + '"\\\\' * (LONGEST // 4),
        "A=1 " * (LONGEST // 5) + "vllm serve m",
    ],
)
def test_a_huge_command_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        read_command(text)


@given(st.text(alphabet="vllm serv'\"$(){}\\\n#<>&|;`=-ab \t", max_size=60))
def test_any_text_gives_launches_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert read_command("vllm serve m\n" + text)[0].tokens == ("m",)


@given(st.lists(st.text(alphabet="ab'\"$ \\{}#", max_size=8), min_size=1, max_size=6))
def test_quoting_for_the_shell_is_undone(words: list[str]) -> None:
    (launch,) = read_command("vllm serve " + shlex.join(words))
    assert launch.tokens == tuple(words)


def test_comments_and_operators_end_commands() -> None:
    commands = read_commands("a # b\nc;d&&e|f\n")
    assert [[word.literal() for word in command.words] for command in commands] == [
        ["a"],
        ["c"],
        ["d"],
        ["e"],
        ["f"],
    ]
