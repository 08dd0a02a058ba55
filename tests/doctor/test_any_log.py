"""Whatever a log went through, it is diagnosed or refused in one error, and what is said of it holds together."""

from __future__ import annotations

import io
import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.redaction.secrets import PLAIN, SHAPED

import kvroom
from kvroom.doctor.diagnosis import Diagnosis
from kvroom.errors import KvroomError
from kvroom.report.diagnosis_json import diagnosis_data
from kvroom.report.diagnosis_markdown import diagnosis_markdown
from kvroom.report.diagnosis_text import print_diagnosis

ROOT = Path(__file__).parent.parent.parent
LOGS = sorted([*(ROOT / "docs" / "examples").glob("*.log"), *(ROOT / "tests" / "data" / "logs").glob("*.log")])
MOST_LINES = 120
PREFIXES = (
    "2024-05-01T10:00:00.000Z ",
    "vllm-1  | ",
    "(Worker_TP1 pid=7) ",
    "[rank3]: ",
    "> ",
    "\x1b[31m",
    "{",
    "\t",
    "",
)
NUMBERS = ("0", "-1", "1e400", "nan", "9" * 15, "9" * 400, "0.0", "-0.5", "1,2,3", "inf", "٣", "1.2.3")
JUNK = ("\r", "\0", "\ud800", "\u202e", "[red]", "</details>", "```", "{'a': ", "[[[[", '"', "'", "\\", "\x1b]0;x\x07")


@cache
def lines_of(path: Path) -> tuple[str, ...]:
    lines = path.read_text("utf-8", "replace").splitlines()
    return tuple([*lines[: MOST_LINES // 2], *lines[-MOST_LINES // 2 :]] if len(lines) > MOST_LINES else lines)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    lines = list(lines_of(draw(st.sampled_from(LOGS))))
    place = st.integers(0, len(lines) - 1)
    for _ in range(draw(st.integers(0, 6))):
        at, other = draw(place) % len(lines), draw(place) % len(lines)
        change = draw(st.sampled_from("drop double cut swap join prefix number junk other".split()))
        line = lines[at]
        if change == "drop" and len(lines) > 1:
            del lines[min(at, other) : min(max(at, other), len(lines) - 1)]
        elif change == "double":
            lines[at:at] = [line] * draw(st.sampled_from([1, 3]))
        elif change == "cut":
            lines[at] = line[: draw(st.integers(0, len(line)))]
        elif change == "swap":
            lines[at], lines[other] = lines[other], lines[at]
        elif change == "join":
            lines[at] = line + lines[other]
        elif change == "prefix":
            prefix = draw(st.sampled_from(PREFIXES))
            lines[at:] = [prefix + each for each in lines[at:]]
        elif change == "number":
            words = line.split(" ")
            numbers = [n for n, word in enumerate(words) if any(letter.isdigit() for letter in word)]
            if numbers:
                words[draw(st.sampled_from(numbers))] = draw(st.sampled_from(NUMBERS))
            lines[at] = " ".join(words)
        elif change == "junk":
            split = draw(st.integers(0, len(line)))
            lines[at] = line[:split] + draw(st.sampled_from(JUNK)) + line[split:]
        elif change == "other":
            lines[at:at] = lines_of(draw(st.sampled_from(LOGS)))[:30]
    return draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", " ", ""])).join(lines)


def said() -> st.SearchStrategy[dict[str, str]]:
    return st.sampled_from([{}, {"gpu": "RTX 4090"}, {"gpu": "2x H100", "vllm": "0.11.0"}, {"model": "Qwen/Qwen3-8B"}])


def as_text(diagnosis: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=140, highlight=False)
    print_diagnosis(diagnosis, console, explain=True)
    return console.file.getvalue()  # type: ignore[attr-defined]


def faces(diagnosis: Diagnosis) -> dict[str, str]:
    return {
        "json": json.dumps(diagnosis_data(diagnosis), allow_nan=False),
        "text": as_text(diagnosis),
        "markdown": diagnosis_markdown(diagnosis),
        "share": diagnosis_markdown(diagnosis, excerpt=True),
    }


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(log=mutated(), said=said())
def test_any_log_is_diagnosed_or_refused(log: str, said: dict[str, str]) -> None:
    try:
        diagnosis = kvroom.diagnose(log, offline=True, **said)
    except KvroomError:
        return
    shown = faces(diagnosis)

    data = json.loads(shown["json"])
    reading = data["reading"]
    assert 1 <= reading["first_line"] <= reading["last_line"] <= log.count("\n") + 1
    for entry in reading["ledger"]:
        assert entry["low"] <= entry["expected"] <= entry["high"], entry
    for entry in data["predicted"]:
        assert entry["low"] <= entry["expected"] <= entry["high"], entry
    for finding in data["findings"]:
        for item in finding["evidence"]:
            assert item["line"] is None or 1 <= item["line"] <= reading["last_line"], finding["code"]
    assert all(note.strip()[-1:] != ":" for note in data["notes"])
    for name, text in shown.items():
        assert text.strip(), name
        assert not {"\x1b", "\0", "\u202e", "\x9b"} & set(text), name


SAYS = (
    "{}",
    "token={}",
    "'api_key': ['{}'], 'max_model_len': 4096",
    '"hf_token": "{}"',
    "--api-key {}",
    "HF_TOKEN={} ",
    "Authorization: Bearer {}",
    "https://user:{}@hub.example/x",
)
PRIVATE = ("10.20.30.40", "jane.doe@example.com", "/home/janedoe/models", "ip-10-2-3-4.ec2.internal", "192.168.7.9")


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(
    log=mutated(),
    secret=st.sampled_from([*SHAPED, "aA1" + PLAIN]),
    says=st.sampled_from(SAYS),
    private=st.sampled_from(PRIVATE),
    place=st.integers(0, 400),
    inside=st.booleans(),
)
def test_planted_secrets_do_not_survive(
    log: str, secret: str, says: str, private: str, place: int, inside: bool
) -> None:
    if secret not in SHAPED and "{}" in {says, says.partition("=")[2]}:
        says = "password={}"
    lines = log.split("\n")
    at = place % len(lines)
    planted = f" {says.format(secret)} {private} "
    if inside:
        given = f"non-default args: {{'model': 'm', {says.format(secret)}}}"
        lines[at:at] = [f"(APIServer pid=1) INFO 11-03 10:00:00 [utils.py:233] {given}"]
        lines[at] += f" {private}"
    else:
        lines[at] += planted
    try:
        shown = faces(kvroom.diagnose("\n".join(lines), offline=True, gpu="RTX 4090"))
    except KvroomError as error:
        shown = {"error": str(error)}
    for name, text in shown.items():
        assert secret not in text, name
        if name in {"markdown", "share"}:
            assert private not in text, name
            assert "janedoe" not in text, name


@pytest.mark.parametrize("key", ["api_key", "hf_token", "ssl_keyfile_password", "secret_key", "token"])
@pytest.mark.parametrize("value", ["'{}'", "['{}']", "('{}', 'x')", "{{'a': '{}'}}"])
def test_a_secret_among_the_arguments_is_hidden_by_its_name(key: str, value: str) -> None:
    log = f"INFO 11-03 10:00:00 [utils.py:233] non-default args: {{'model': 'm', '{key}': {value.format(PLAIN)}}}\n"

    diagnosis = kvroom.diagnose(log + LOGS[0].read_text("utf-8").replace("non-default", ""), offline=True)

    assert key in diagnosis.reading.given
    assert PLAIN not in json.dumps(diagnosis_data(diagnosis))
    assert PLAIN not in repr(diagnosis.reading.settings)


NO_VALUES = (
    *"""{[]: 1}|{{}: 1}|1e999|-1e999|1j|...|b'x'|'C:\\d'|'\\ud800'|{'a'}|lambda: 0""".split("|"),
    *("9" * 5000, "0x" + "f" * 5000, "-" * 50_000, "[" * 50_000, "'a': {" * 9000, "'" * 50_001, "(" * 199 + ")" * 199),
)


@pytest.mark.parametrize("value", NO_VALUES, ids=range(len(NO_VALUES)))
def test_values_that_no_argument_has(value: str) -> None:
    log = (
        LOGS[0].read_text("utf-8")
        + f"INFO [utils.py:233] non-default args: {{'model': 'm', 'max_model_len': {value}}}\n"
    )

    assert faces(kvroom.diagnose(log, offline=True, gpu="RTX 4090"))


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999", "9" * 290 + " GiB"])
def test_words_that_python_takes_for_numbers(text: str) -> None:
    log = (
        LOGS[0].read_text("utf-8")
        + f"INFO Using {text} data type to store kv cache\nStarting to load model {text}...\n"
    )

    assert faces(kvroom.diagnose(log, offline=True))


def test_half_a_character_in_a_record() -> None:
    log = '{"log": "\\ud800 INFO [gpu_worker.py:298] Available KV cache memory: 3.50 GiB\\n"}\n'

    assert faces(kvroom.diagnose(log, offline=True))


def test_markup_of_others_is_no_markup_here() -> None:
    model = "</details><img src=x> @team [red]x[/red] |a| $x$ &lt;b&gt;"
    log = f"INFO [utils.py:233] non-default args: {{'model': {model!r}, 'x': '\\n# A heading'}}\n"

    text = diagnosis_markdown(kvroom.diagnose(log, offline=True))

    identity = text.splitlines()[0]
    assert not re.search(r"(?<!\\)[<>|$&\[\]]", identity)
    assert "@team" not in text
    assert "\n# " not in text


def test_a_command_that_vllm_would_not_read_is_said_to_be_so() -> None:
    command = "vllm serve Qwen/Qwen3-8B --max-model-len 1e400"

    notes = kvroom.diagnose(LOGS[0].read_text("utf-8"), command=command, gpu="H100", offline=True).known.notes

    assert any(note.startswith("No prediction: ") and "max-model-len" in note for note in notes)
