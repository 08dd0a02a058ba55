"""The catalogue of options."""

from __future__ import annotations

import pytest

from kvroom.errors import UsageError
from kvroom.vllm.flags import Flag, explain_unknown, flags_for, lifetime, nearest, spelling
from kvroom.vllm.releases import Release, parse_release

NEW = Release(0, 28, 0)


@pytest.mark.parametrize(
    ("release", "option", "known"),
    [
        ("0.17.1", "--swap-space", True),
        ("0.18.1", "--swap-space", False),
        ("0.10.1", "--kv-cache-memory-bytes", True),
        ("0.10.0", "--kv-cache-memory-bytes", False),
        ("0.13.0", "--attention-backend", True),
        ("0.8.5", "--attention-backend", False),
        ("0.6.6", "--use-v2-block-manager", True),
        ("0.4.2", "--tensor-parallel-size", True),
        ("0.40.0", "--tensor-parallel-size", True),
        ("0.33.0", "--disable-expert-parallel", True),
        ("0.32.0", "--disable-expert-parallel", False),
        ("0.33.0", "--no-enable-expert-parallel", True),
    ],
)
def test_options_come_and_go(release: str, option: str, known: bool) -> None:
    assert (option in flags_for(parse_release(release)).by_option) is known


@pytest.mark.parametrize("alias", ["-tp", "-pp", "-dp", "-dcp", "-q", "-ep", "-cc", "-asc"])
def test_short_spellings(alias: str) -> None:
    assert alias in flags_for(Release(0, 31, 0)).by_option


def test_a_switch_has_its_negation() -> None:
    flag, negated = flags_for(NEW).by_option["--no-enable-prefix-caching"]
    assert (flag.name, flag.form, negated) == ("enable_prefix_caching", "switch", True)
    flag, negated = flags_for(Release(0, 33, 0)).by_option["--enable-sliding-window"]
    assert (flag.name, negated) == ("disable_sliding_window", True)


def test_a_release_between_two_that_were_read_has_what_either_has() -> None:
    between = flags_for(Release(0, 10, 1))
    assert set(flags_for(Release(0, 10, 0)).by_option) | set(flags_for(Release(0, 10, 2)).by_option) == set(
        between.by_option
    )
    assert flags_for(Release(0, 14, 0)).by_name["max_model_len"].form == "human_int_or_auto"


def test_abbreviations_as_argparse_has_them() -> None:
    table = flags_for(NEW)
    found = table.find("--kv-cache-mem")
    assert found is not None
    assert found[0].name == "kv_cache_memory_bytes"
    assert table.find("--no-such-option") is None
    with pytest.raises(UsageError, match="could be"):
        table.find("--max-num")


@pytest.mark.parametrize(
    ("option", "release", "says"),
    [
        ("--swap-space", "0.28.0", "removed after 0.17.1"),
        ("--swap_space=4", "0.28.0", "removed after 0.17.1"),
        ("--watermark-config", "0.28.0", "came with 0.30.0"),
        ("--max-modle-len", "0.28.0", "did you mean --max-model-len?"),
        ("--qwertyuiop", "0.28.0", "vLLM 0.28.0 has no --qwertyuiop."),
    ],
)
def test_an_unknown_option_is_explained(option: str, release: str, says: str) -> None:
    assert says in explain_unknown(option, parse_release(release))


def test_nearest_gives_up_on_nonsense() -> None:
    assert nearest("--" + "x" * 1000, flags_for(NEW)) is None


def test_spelling_leaves_keys_and_values_alone() -> None:
    assert spelling("--a_b.c_d") == "--a-b.c_d"
    assert spelling("-a_b") == "-a_b"


def test_lifetime_spans_changes_of_form() -> None:
    life = lifetime("--max-model-len")
    assert life is not None
    assert (life[0], life[1]) == (Release(0, 6, 6), None)


def test_forms_and_options_are_of_the_known_kinds() -> None:
    forms = {"switch", "true", "bool_text", "int", "human_int", "human_int_or_auto", "float", "str"} | {
        *("opt_str", "json", "json_or_str", "ints", "strs")
    }
    for minor in range(6, 34):
        table = flags_for(Release(0, minor, 2))
        assert len(table.by_name) > 100
        for option, (flag, negated) in table.by_option.items():
            assert isinstance(flag, Flag)
            assert flag.form in forms
            assert option in (flag.negations if negated else flag.options)
            assert not (negated and flag.takes_value)
