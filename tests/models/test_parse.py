import pytest

from kvroom.errors import BadConfig
from kvroom.models.parse import MAX_BYTES, parse_object


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not valid JSON"),
        (b'{"num_hidden_layers": 3', "line 1, column 24"),
        (b'["llama"]', "not a JSON object but a list"),
        (b"null", "not a JSON object but a NoneType"),
        (b'{"a": "\xff\xfe"}', "not UTF-8"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "thousands of digits"),
    ],
)
def test_what_is_no_config_is_one_clear_error(data: bytes, says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        parse_object(data)


def test_an_enormous_file_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(BadConfig, match="65 MiB"):
        parse_object(b" " * (MAX_BYTES + (1 << 20)))


def test_a_byte_order_mark_and_infinity_are_let_through() -> None:
    data = b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity]}'

    assert parse_object(data)["time_step_limit"] == [0.0, float("inf")]


def test_the_file_is_named_in_the_error() -> None:
    with pytest.raises(BadConfig, match=r"hf_quant_config\.json is not valid"):
        parse_object("{", "hf_quant_config.json")
