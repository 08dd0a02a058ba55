"""Ways to store the weights: each row is a plan's, and what does not run says why."""

from __future__ import annotations

import pytest

from kvroom.errors import KvroomError, UsageError
from kvroom.ledger.verdict import Status
from kvroom.plans.make import plan, plan_tokens
from kvroom.plans.request import Request
from kvroom.sizing.checkpoints import HubListing, Listed, found_for, kind_of, refuse_offline
from kvroom.sizing.kinds import kinds
from kvroom.sizing.quant import QuantTable, quant_table


def _table(model: str, gpu: str, vllm: str = "0.20.0", *flags: str, **asked: object) -> QuantTable:
    request = Request(gpu=gpu, vllm=vllm, offline=True)
    setup = plan_tokens([model, *flags], {}, request).prediction.setup
    return quant_table(setup, request, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fp8-dynamic", "awq", "w4a16", "nvfp4", "bitsandbytes", "gguf:Q4_K_M"])
def test_a_row_is_the_plan_with_that_quantisation(name: str) -> None:
    table = _table("Qwen/Qwen3-8B", "RTX 4090", "0.20.0", "--max-model-len", "16384")
    row = next(row for row in table.rows if row.name == name)
    planned = plan(
        "Qwen/Qwen3-8B", gpu="RTX 4090", vllm="0.20.0", offline=True, max_model_len=16384, assume_quantization=name,
        learned=False,
    ).prediction  # fmt: skip
    assert planned.ledger is not None
    assert planned.pool is not None
    assert row.weights_bytes == planned.ledger.weights.expected
    assert row.available_bytes == planned.ledger.available.expected
    assert row.longest == planned.pool.longest_context
    assert row.status is planned.verdict.status


def test_the_row_of_fp8_is_the_flag() -> None:
    row = next(row for row in _table("Qwen/Qwen3-8B", "RTX 4090").rows if row.name == "fp8")
    planned = plan("Qwen/Qwen3-8B", gpu="RTX 4090", vllm="0.20.0", offline=True, quantization="fp8", learned=False)
    assert planned.prediction.ledger is not None
    assert row.weights_bytes == planned.prediction.ledger.weights.expected


def test_gpus_saved() -> None:
    table = _table("Qwen/Qwen3-32B", "RTX 4090", context=16384, concurrency=2)
    plain = table.rows[0]
    four = next(row for row in table.rows if row.name == "w4a16")
    assert plain.gpus == 4
    assert four.gpus == 2
    assert table.saved(four) == 2
    assert table.saved(plain) == 0


def test_what_does_not_run_says_why() -> None:
    rows = {row.name: row for row in _table("Qwen/Qwen3-8B", "RTX 2080 Ti", "0.12.0", "--dtype", "float16").rows}
    assert "Minimum capability: 80" in rows["nvfp4"].why_not
    assert rows["nvfp4"].gpus is None
    rows = {row.name: row for row in _table("Qwen/Qwen3-8B", "RTX 4090", "0.28.0").rows}
    assert rows["gguf:Q4_K_M"].why_not == "vLLM reads it no more since 0.24.0"
    assert rows["bitsandbytes"].status is Status.FAILS
    rows = {row.name: row for row in _table("Qwen/Qwen3-8B", "H100", "0.8.0").rows}
    assert "is the first that reads it" in rows["nvfp4"].why_not


def test_native_or_unpacked() -> None:
    def computed(gpu: str) -> dict[str, str]:
        return {row.name: row.runs for row in _table("Qwen/Qwen3-30B-A3B", gpu).rows}

    assert computed("B200")["nvfp4"] == "native"
    assert computed("H100")["nvfp4"] == "weight-only"
    assert computed("H100")["fp8"] == "native"
    assert computed("A100-80GB")["fp8"] == "weight-only"
    assert computed("B200")["awq"] == "weight-only"


def test_a_quantised_checkpoint_is_compared_with_plain_weights() -> None:
    table = _table("openai/gpt-oss-120b", "H100")
    assert table.rows[0].label == "mxfp4, as published"
    assert table.rows[0].runs == "weight-only"
    names = [row.name for row in table.rows]
    assert "mxfp4" not in names
    plain = next(row for row in table.rows if row.name == "16 bit")
    assert plain.weights_bytes > 3 * table.rows[0].weights_bytes
    assert table.saved(plain) is not None
    assert table.saved(plain) < 0  # type: ignore[operator]


def test_experts_only_formats_need_experts() -> None:
    assert "mxfp4" not in {row.name for row in _table("Qwen/Qwen3-8B", "B200").rows}
    assert "mxfp4" in {row.name for row in _table("Qwen/Qwen3-30B-A3B", "B200").rows}


def test_every_kind_has_a_source_and_is_known_to_plan() -> None:
    for kind in kinds():
        assert kind.caveat
        assert kind.source
        assert plan("Qwen/Qwen3-30B-A3B", gpu="H200", offline=True, learned=False, assume_quantization=kind.name)


def test_wrong_questions() -> None:
    with pytest.raises(UsageError, match="is what is compared"):
        _table("Qwen/Qwen3-8B", "H100", "0.20.0", "--quantization", "fp8")
    with pytest.raises(UsageError, match="longer than the model"):
        _table("Qwen/Qwen3-8B", "H100", context=100_000)


class Shelf:
    """A hub that lists what it is given."""

    def __init__(self, *listed: Listed) -> None:
        self._listed = listed

    def quantized(self, model: str) -> tuple[Listed, ...]:
        return self._listed


def test_the_most_downloaded_of_each_kind_is_found() -> None:
    shelf = Shelf(
        Listed("a/Qwen3-8B-AWQ", (), 10),
        Listed("b/Qwen3-8B-AWQ", (), 500),
        Listed("c/Qwen3-8B-GGUF", ("gguf",), 7),
        Listed("d/Qwen3-8B-FP8-dynamic", ("compressed-tensors",), 3),
        Listed("e/Qwen3-8B-quantized.w4a16", (), 2),
        Listed("f/Qwen3-8B-unsloth", ("bitsandbytes", "4-bit"), 1),
        Listed("g/Qwen3-8B-mystery", (), 99),
    )
    names = [kind.name for kind in kinds()]
    found = found_for("Qwen/Qwen3-8B", names, shelf)
    assert {name: listed.repo[0] for name, listed in found.items()} == {
        "awq": "b",
        "gguf:Q8_0": "c",
        "gguf:Q6_K": "c",
        "gguf:Q4_K_M": "c",
        "fp8-dynamic": "d",
        "w4a16": "e",
        "bitsandbytes": "f",
    }
    assert kind_of(Listed("x/DeepSeek-NVFP4")) == "nvfp4"


class BrokenApi:
    """A client without a network."""

    def list_models(self, **asked: object) -> object:
        raise ConnectionError("no route")


class SomeApi:
    """A client that answers as huggingface_hub does."""

    def list_models(self, **asked: object) -> object:
        assert asked["filter"] == "base_model:quantized:Qwen/Qwen3-8B"

        class Model:
            id = "a/Qwen3-8B-AWQ"
            tags = None
            downloads = None

        return iter([Model()])


def test_the_hub_is_asked_for_the_models_that_name_this_one() -> None:
    assert list(HubListing(SomeApi()).quantized("Qwen/Qwen3-8B")) == [Listed("a/Qwen3-8B-AWQ")]
    with pytest.raises(KvroomError, match=r"ConnectionError\)"):
        HubListing(BrokenApi()).quantized("Qwen/Qwen3-8B")


def test_offline_forbids_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="offline"):
        refuse_offline(offline=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match="offline"):
        refuse_offline(offline=False)
