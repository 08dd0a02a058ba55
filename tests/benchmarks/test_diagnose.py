"""The scoring of ``benchmarks.diagnose`` on small made-up cases."""

import json
from types import SimpleNamespace

import pytest
from benchmarks.diagnose import ask, run, table
from benchmarks.diagnose_cases import STATED, Case, as_typed, asked_with, read_case, samples
from benchmarks.diagnose_cures import Cure, cured, cures_of, offered
from benchmarks.diagnose_numbers import equal, found_at, printed
from benchmarks.diagnose_score import (
    STAGES,
    causes_of,
    false_alarm,
    missed_numbers,
    names_cause,
    numbers_of,
    read_map,
    score,
    share_of_memory,
    shows_where,
    stages_of,
    summary,
)

import kvroom.report
from kvroom.errors import UsageError

GIB = 2**30
NAMES = read_map()
NEED = "ValueError: To serve at least one request with the model's max seq len (8192), 2.50 GiB KV cache is needed."


def report(**changes):
    data = {
        "id": "901-made-up",
        "log_lines": ["Model loading took 13.9400 GiB", NEED],
        "observed": {
            "stage": "kv_check",
            "error_id": "KV_NEED_GT_AVAIL",
            "weights_gib": 13.94,
            "kv_needed_gib": 2.5,
            "max_model_len": 8192,
            "kv_tokens": 4096,
            "extra": {"util": 0.9},
        },
        "command": ["vllm", "serve", "<MODEL_DIR>/made-up", "--gpu-memory-utilization", "0.8"],
        "root_cause_basis": STATED,
        "what_fixed_it": "Raise utilisation, or max_model_len 4096.",
    }
    return data | changes


def diagnosis(**changes):
    data = {
        "reading": {
            "stage": "kv_sizing",
            "ledger": [{"entry": "weights", "expected": int(13.94 * GIB)}],
            "pool": {"needed_bytes": int(2.5 * GIB), "max_model_len": 8192},
        },
        "findings": [{"code": "KVR203", "severity": "error", "remedies": []}],
        "remedies": [{"flags": ["--max-model-len", "4096"], "verdict": {"status": "may_fit"}}],
        "verdict": {"status": "fails"},
        "numbers": {},
    }
    return data | changes


@pytest.mark.parametrize(
    ("value", "text", "literal"),
    [
        (6.94, "memory (6.94 GiB).", "6.94"),
        (36.0, "(36.0 GiB KV cache is needed", "36.0"),
        (17.611, "took 17.6110 GiB", "17.6110"),
        (-1.05, "reserved for KV Cache is -1.05GiB.", "-1.05"),
        (1487645, "1,487,645 tokens", "1487645"),
        (0, "# cuda blocks: 0, 0.00x", "0"),
        (0.0, "# cuda blocks: 0, 0.00x", "0.00"),
        (5.2, "kv_cache_memory_bytes: 5583457484", None),
        (150000, "150K tokens", None),
        (0.85, "vLLM 0.85.1", None),
        (243, "1243 blocks", None),
    ],
)
def test_a_number_is_printed_only_as_its_digits_stand_there(value, text, literal):
    assert printed(value, text) == literal


@pytest.mark.parametrize(
    ("candidate", "literal", "unit", "same"),
    [
        (int(6.94 * GIB), "6.94", "GiB", True),
        (int(6.9449 * GIB), "6.94", "GiB", True),
        (int(6.9451 * GIB), "6.94", "GiB", False),
        (int(36.04 * GIB), "36.0", "GiB", True),
        (int(13.9476 * GIB), "13.9476", "GiB", True),
        (int(13.95 * GIB), "13.9476", "GiB", False),
        (int(605.88 * 2**20), "605.88", "MiB", True),
        (81536, "81536", "", True),
        (81537, "81536", "", False),
        (4.866, "4.87", "", True),
        (4.85, "4.87", "", False),
    ],
)
def test_numbers_are_compared_at_the_printed_precision(candidate, literal, unit, same):
    assert equal(candidate, literal, unit) is same


def test_decimal_gigabytes_count_where_the_log_prints_gb():
    assert equal(19_740_000_000, "19.74", "GiB", "model_memory=19.74GB")
    assert not equal(19_740_000_000, "19.74", "GiB", "took 19.74 GiB")


def test_numbers_are_found_in_lists_maps_and_by_a_part_of_the_name():
    data = {
        "reading": {
            "ledger": [{"entry": "weights", "low": 1, "expected": 2}, {"entry": "other", "expected": None}],
            "devices": [{"free_bytes": 3}, {"free_bytes": 4}],
        },
        "numbers": {"kv_needed": 5, "needed_too": True},
    }
    assert found_at(data, ["reading.ledger.weights", "reading.ledger.other"]) == [2]
    assert found_at(data, ["reading.devices.free_bytes", "numbers.*need*", "pool.tokens"]) == [3, 4, 5]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Lower max-model-len / adjust utilisation locally.", ["gpu_memory_utilization", "max_model_len"]),
        ("max_num_seqs 64.", ["max_num_seqs"]),
        ("VLLM_USE_V1=0 or #15114.", ["VLLM_USE_V1"]),
        ("Run with V1 (title implies V0 is the cause).", ["VLLM_USE_V1"]),
        ("--max-num-seqs lower (default 1024 in V1 then); later releases reduced it.", ["max_num_seqs"]),
        ("VLLM_USE_V2_MODEL_RUNNER=0.", ["VLLM_USE_V2_MODEL_RUNNER"]),
        ("--enforce-eager or graph estimate off", ["enforce_eager", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"]),
        ("kv_cache_memory_bytes 20 GiB.", ["kv_cache_memory_bytes"]),
        ("--limit-mm-per-prompt with explicit width", ["limit_mm_per_prompt"]),
        ("0.95.", ["gpu_memory_utilization"]),
        ("30000 worked with other settings.", ["max_model_len"]),
        ("Kill the old process.", ["free_the_gpu"]),
        ("MAX_JOBS.", ["MAX_JOBS"]),
        ("--some-new-flag 3", ["some_new_flag"]),
        ("0.2.4.", []),
        ("PR open.", []),
        (">= (merged).", []),
        ("--enforce-eager tried without success.", []),
        ("Attempted: 0.95 to 0.90.", []),
    ],
)
def test_the_settings_that_a_fix_names(text, names):
    assert [cure.name for cure in cures_of(text)] == names


@pytest.mark.parametrize(
    ("text", "direction", "value"),
    [
        ("Lower utilisation to 0.8, or select devices.", "down", 0.8),
        ("Raise utilisation above what others already hold (0.5, 0.6).", "up", None),
        ("Lower max-model-len / adjust utilisation locally.", "", None),
        ("Default 0.9 works.", "", 0.9),
    ],
)
def test_the_direction_and_value_of_the_share_of_memory(text, direction, value):
    assert cures_of(text)[0] == Cure("gpu_memory_utilization", direction, value)


@pytest.mark.parametrize(
    ("remedy", "names"),
    [
        ({"flags": ["--max-model-len", "4096"]}, ["max_model_len"]),
        ({"flags": ["--max_num_seqs=8", "--enforce-eager"]}, ["max_num_seqs", "enforce_eager"]),
        ({"flags": ["-tp", "2"]}, ["tensor_parallel_size"]),
        ({"flags": ["VLLM_USE_V1=0"]}, ["VLLM_USE_V1"]),
        ({"flags": ["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]}, ["expandable_segments"]),
        ({"flags": [], "name": "stop the other process"}, ["free_the_gpu"]),
        ("set MAX_JOBS=4", ["MAX_JOBS"]),
    ],
)
def test_the_settings_that_a_remedy_changes(remedy, names):
    assert [cure.name for cure in offered(remedy)] == names


def test_only_the_first_two_remedies_count():
    remedies = [{"flags": ["--enforce-eager"]}, {"flags": ["--block-size", "32"]}, {"flags": ["--max-model-len", "1"]}]
    assert cured(cures_of("--enforce-eager"), remedies)
    assert not cured(cures_of("max_model_len"), remedies)


def test_a_remedy_that_the_ledger_shows_to_start_counts():
    assert cured(cures_of("max_model_len"), [{"flags": ["--enforce-eager"], "verdict": {"status": "fits"}}])
    assert not cured(cures_of("max_model_len"), [{"flags": ["--enforce-eager"], "verdict": {"status": "fails"}}])


def test_a_share_of_memory_in_the_other_direction_is_no_cure():
    up = [{"flags": ["--gpu-memory-utilization", "0.95"]}]
    assert cured(cures_of("Raise utilisation."), up, 0.9)
    assert not cured(cures_of("Lower utilisation."), up, 0.9)
    assert not cured(cures_of("0.8."), up, 0.9)
    assert cured(cures_of("0.85."), up, 0.85)  # the report's command shows the fix


def test_the_share_of_memory_of_a_command():
    assert share_of_memory(["vllm", "serve", "--gpu-memory-utilization", "0.5"]) == 0.5
    assert share_of_memory([]) == 0.9


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ("Model loading took 4.4570 GiB memory", True),
        ("OOM inside profile_cudagraph_memory()", True),
        ("max seq len (8192) ... KV cache (2400)", True),
        ("Tried to allocate 2.00 MiB. GPU 6 has a total capacity of 44.53 GiB", False),
        ("nvidia-smi: 3578MiB / 8188MiB", False),
        ("Initializing a V1 LLM engine (v0.8.5) with config", False),
    ],
)
def test_which_lines_show_where_a_launch_stopped(line, shows):
    assert shows_where([line]) is shows


def test_what_is_expected_of_a_case():
    case = read_case(report())
    assert stages_of(case, NAMES) == ["kv_sizing"]
    assert causes_of(case, NAMES) == ["KVR203"]
    assert numbers_of(case, NAMES) == {"weights_gib": "13.9400", "kv_needed_gib": "2.50", "max_model_len": "8192"}


def test_a_launch_that_came_up_may_be_at_any_later_stage():
    case = Case("902", ("GPU KV cache size: 1,024 tokens",), observed={"stage": "kv_sized"})
    lower = Case("902", case.lines, observed={"stage": "kv_sized", "error_id": "KV_LOWER_THAN_EXPECTED"})
    assert stages_of(case, NAMES) == ["kv_sizing", "kv_alloc"]
    assert stages_of(lower, NAMES) == STAGES[STAGES.index("kv_sizing") :]


def test_an_unknown_error_is_not_judged():
    assert causes_of(read_case(report(observed={"error_id": "NEW"})), NAMES) is None
    assert stages_of(read_case(report(observed={"stage": "new"})), NAMES) is None


def test_a_warning_names_the_cause_only_among_the_first_two():
    warnings = [{"code": code, "severity": "warning"} for code in ("KVR221", "KVR222", "KVR230")]
    assert names_cause({"findings": warnings}, ["KVR222"])
    assert not names_cause({"findings": warnings}, ["KVR230"])
    assert names_cause({"findings": [*warnings, {"code": "KVR202", "severity": "error"}]}, ["KVR202"])
    assert names_cause({"findings": warnings}, [])


def test_a_row():
    row = score(read_case(report()), diagnosis(), NAMES)
    assert (row["stage"]["right"], row["cause"]["right"], row["cure"]["right"]) == (True, True, True)
    assert row["numbers"] == {"judged": 3, "missed": {}}


def test_a_diagnosis_that_says_nothing_is_wrong():
    row = score(read_case(report()), {}, NAMES)
    assert (row["stage"]["right"], row["cause"]["right"], row["cure"]["right"]) == (False, False, False)
    assert len(row["numbers"]["missed"]) == 3


def test_a_number_missed():
    said = diagnosis(reading={"stage": "kv_sizing", "ledger": [], "pool": {"needed_bytes": 3 * GIB}})
    case = read_case(report())
    assert missed_numbers(case, said, NAMES) == {
        "weights_gib": "13.9400",
        "kv_needed_gib": "2.50",
        "max_model_len": "8192",
    }


def test_shares_count_what_was_judged():
    good = score(read_case(report()), diagnosis(), NAMES)
    thin = score(read_case(report(log_lines=["it fails"], what_fixed_it="")), diagnosis(), NAMES)
    figures = summary([good, thin, score(read_case(report()), {}, NAMES)])
    assert figures["cases"] == 3
    assert figures["judged"] == {"stage": 2, "cause": 2, "cure": 2, "numbers": 6}
    assert figures["stage_right"] == figures["numbers_exact"] == 0.5
    assert summary([])["cause_right"] is None


def test_only_errors_and_failures_are_false_alarms():
    assert not false_alarm({"findings": [{"code": "KVR221", "severity": "warning"}], "verdict": {"status": "fits"}})
    assert false_alarm({"findings": [{"code": "KVR202", "severity": "error"}]})
    assert false_alarm({"findings": [], "verdict": {"status": "fails"}})
    assert not false_alarm({"findings": [], "verdict": None})


def test_what_is_passed_holds_no_remark_and_no_fix():
    asked = asked_with(
        report(
            gpu={"name": "NVIDIA GB10 (DGX Spark)", "count": 2},
            env={"VLLM_USE_V1": "0 (works)", "CUDA_VISIBLE_DEVICES": "0"},
            model="made-up/model-7b",
            vllm_version="0.8.5.post1",
        )
    )
    assert asked == {
        "command": ["vllm", "serve", "/models/made-up", "--gpu-memory-utilization", "0.8"],
        "model": "made-up/model-7b",
        "gpu": "2x NVIDIA GB10",
        "vllm": "0.8.5.post1",
        "env": {"CUDA_VISIBLE_DEVICES": "0"},
    }


@pytest.mark.parametrize(
    ("tokens", "typed"),
    [
        (["<two nodes>", "--max-model-len", "1024"], ["vllm", "serve", "--max-model-len", "1024"]),
        (["vllm", "serve", "<Model-A>", "--kv-cache-memory-bytes", "<49.0 GiB>"], ["vllm", "serve", "Model-A"]),
        (["gpu_memory_utilization=<recipe>", "max_model_len=64"], ["vllm", "serve", "--max-model-len", "64"]),
        (["--model=a/b", "--config", "x.json"], ["vllm", "serve", "--model=a/b", "--config", "x.json"]),
        (["<tp 8>"], []),
    ],
)
def test_a_command_as_it_was_typed(tokens, typed):
    assert as_typed(tokens) == typed


@pytest.fixture
def corpus(tmp_path):
    for folder in ("failing", "started", "log-samples"):
        (tmp_path / folder).mkdir()
    (tmp_path / "failing" / "901.json").write_text(json.dumps(report()), "utf-8")
    (tmp_path / "failing" / "902.json").write_text(json.dumps(report(id="902-b", root_cause_basis="open")), "utf-8")
    (tmp_path / "started" / "903.json").write_text(json.dumps({"id": "903", "log_lines": ["fine"]}), "utf-8")
    (tmp_path / "log-samples" / "v0-blocks-0.6.6.log").write_text(
        "# thread: none\n# note: fine\n# GPU blocks: 9\n", "utf-8"
    )
    (tmp_path / "log-samples" / "bf16-t4.log").write_text("# note: x\nValueError: Bfloat16", "utf-8")
    return tmp_path


def test_the_scoreboard(corpus):
    board = run(corpus, lambda _case: (diagnosis(), "without model: unknown"))
    assert {key: board["summary"][key] for key in ("cases", "stage_right", "healthy", "false_alarms")} == {
        "cases": 2,
        "stage_right": 1.0,
        "healthy": 2,
        "false_alarms": 2,
    }
    assert (board["summary_stated"]["cases"], board["summary_others"]["cases"]) == (1, 1)
    assert board["summary_samples"]["cause_right"] == 0
    text = table(board)
    assert "false alarms: 2 of 2 healthy logs" in text
    assert "bf16-t4: cause KVR244, says KVR203" in text


def test_what_kvroom_refuses_is_left_out_and_a_crash_says_nothing(monkeypatch):
    def diagnose(_log, **asked):
        if "model" in asked:
            raise UsageError("no such model")
        return {"asked": sorted(asked)} if "gpu" in asked else 1 / 0

    monkeypatch.setattr(kvroom, "diagnose", diagnose, raising=False)
    writer = SimpleNamespace(diagnosis_data=lambda said: said)
    monkeypatch.setattr(kvroom.report, "diagnosis_json", writer, raising=False)
    assert ask(Case("904", (), {"model": "a/b", "gpu": "H100"})) == (
        {"asked": ["gpu", "offline"]},
        "without model: no such model",
    )
    assert ask(Case("904", ())) == ({}, "ZeroDivisionError: division by zero")


def test_one_case_alone(corpus):
    board = run(corpus, lambda _case: ({}, ""), only=["902"])
    assert [row["id"] for row in board["rows"]] == ["902-b"]


def test_the_head_of_a_sample_is_not_part_of_the_log(corpus):
    assert {case.id: case.log for case in samples(corpus)} == {
        "bf16-t4": "ValueError: Bfloat16",
        "v0-blocks-0.6.6": "# GPU blocks: 9",
    }


def test_the_map_names_only_stages_that_exist():
    entries = {**NAMES["stages"]}
    entries.pop("about")
    assert {stage for stages in entries.values() for stage in stages} <= set(STAGES)
