import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.devices.names import parse_gpu, parse_memory, words
from kvroom.errors import DeviceError, UsageError
from kvroom.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("RTX 4090", "RTX 4090", 1),
        ("4x RTX 3090", "RTX 3090", 4),
        ("4 x RTX 3090", "RTX 3090", 4),
        ("RTX 4090x2", "RTX 4090", 2),
        ("RTX 4090 x2", "RTX 4090", 2),
        ("RTX 4090 x 2", "RTX 4090", 2),
        ("2xH100", "H100", 2),
        ("2XH100", "H100", 2),
        ("8\u00d7H100", "H100", 8),
        ("8*H100", "H100", 8),
        ("2 H100", "H100", 2),
        ("A100:8", "A100", 8),
        ("2x4090", "4090", 2),
        ("4090x2", "4090", 2),
        ("4090", "4090", 1),
        ("5060 Ti", "5060 Ti", 1),
        ("4090 Laptop", "4090 Laptop", 1),
        ("2x 5060 Ti 16GB", "5060 Ti 16GB", 2),
        ("5060 Ti 16GBx2", "5060 Ti 16GB", 2),
        ("NVIDIA-H100-80GB-HBM3x8", "NVIDIA-H100-80GB-HBM3", 8),
        ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", 1),
        ("A100-SXM4x8", "A100-SXM4", 8),
        ("RX 7900 XTX", "RX 7900 XTX", 1),
        ("RX 7900 XTX x2", "RX 7900 XTX", 2),
        ("2xRX 7900 XTX", "RX 7900 XTX", 2),
        ("RX 580", "RX 580", 1),
        ("GTX 1080 Ti", "GTX 1080 Ti", 1),
        ("MI300X", "MI300X", 1),
        ("MI300Xx8", "MI300X", 8),
        ("8xMI300X", "MI300X", 8),
        ("L40Sx4", "L40S", 4),
        ("AI Max+ 395", "AI Max+ 395", 1),
        ("RTX 2000 Ada", "RTX 2000 Ada", 1),
        (" T4 ", "T4", 1),
    ],
)
def test_a_count_is_told_from_an_x_of_the_name(text: str, name: str, count: int) -> None:
    assert parse_gpu(text) == (name, count)


@pytest.mark.parametrize("text", ["", "  ", "0xH100", "-1xH100", "RTX 4090x0", "9999xH100", "x" * 300])
def test_no_name_and_no_possible_count_are_errors(text: str) -> None:
    with pytest.raises(DeviceError) as error:
        parse_gpu(text)
    assert error.value.cure


@given(st.sampled_from(["RTX 4090", "H100", "MI300X", "RX 7900 XTX", "L40S", "4090"]), st.integers(1, 512))
def test_a_count_comes_back_whichever_side_it_is_written_on(name: str, count: int) -> None:
    assert parse_gpu(f"{count}x{name}") == (name, count)
    assert parse_gpu(f"{name} x{count}") == (name, count)


@given(st.text(max_size=40))
def test_any_text_gives_a_name_or_an_error(text: str) -> None:
    try:
        name, count = parse_gpu(text)
    except DeviceError:
        return
    assert name == name.strip() != ""
    assert count >= 1


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * GIB),
        ("24 gib", 24 * GIB),
        ("24Gi", 24 * GIB),
        ("24G", 24 * GIB),
        ("24", 24 * GIB),
        ("24GB", 24 * 10**9),
        ("24564MiB", 24564 * MIB),
        ("24564 MB", 24564 * 10**6),
        ("24,564MiB", 24564 * MIB),
        ("0.5TiB", 512 * GIB),
        ("23.65", int(23.65 * GIB)),
        ("25769803776B", 24 * GIB),
    ],
)
def test_sizes_of_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "0", "0GiB", "-24GiB", "24 apples", "24KiB", "1e9", "nan", "1.2.3", "9" * 60, "99999TiB"],
)
def test_other_sizes_are_errors_that_show_the_form(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_memory(text)
    assert "24GiB" in str(error.value)


@given(st.integers(1, 4000))
def test_mib_are_read_back(mib: int) -> None:
    assert parse_memory(f"{mib}MiB") == mib * MIB


def test_brand_case_and_punctuation_do_not_matter() -> None:
    assert words("NVIDIA GeForce RTX 4090") == words("rtx4090") == words("4090") == {"4090"}
    assert words("Tesla-V100-SXM2-16GB") == words("v100 sxm2 16 GB")
    assert words("RTX 4090") != words("RTX 4090 D")
