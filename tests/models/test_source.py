import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvroom.errors import BadConfig, UnknownModel, UsageError
from kvroom.models import catalogue
from kvroom.models.checkpoint import Checkpoint
from kvroom.models.source import load_model

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048,
}  # fmt: skip
INDEX = "model.safetensors.index.json"


class FakeHub:
    """A hub of one repository, which remembers what it was asked."""

    def __init__(self, files: Mapping[str, bytes], checkpoint: Checkpoint | None = None) -> None:
        self.files = files
        self.checkpoint = checkpoint
        self.asked: list[str] = []

    def read(self, repo: str, filename: str, revision: str | None) -> bytes | None:
        self.asked.append(filename)
        return self.files.get(filename)

    def single_file(self, repo: str, revision: str | None) -> Checkpoint | None:
        self.asked.append("header")
        return self.checkpoint


class BrokenHub:
    """A hub that refuses everything but what is in ``files``."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def read(self, repo: str, filename: str, revision: str | None) -> bytes | None:
        if filename in self.files:
            return self.files[filename]
        raise UnknownModel(f"{repo} cannot be read.", "Try later.")

    def single_file(self, repo: str, revision: str | None) -> Checkpoint | None:
        raise UnknownModel(f"{repo} cannot be read.")


def as_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def write_shard(path: Path, tensors: Mapping[str, tuple[str, int]]) -> None:
    header, end = {}, 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = as_bytes({"__metadata__": {"format": "pt"}, **header})
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_bytes(as_bytes(CONFIG))
    return tmp_path


class TestFolder:
    def test_a_folder_and_its_config_are_the_same_model(self, folder: Path) -> None:
        from_folder, from_file = load_model(str(folder)), load_model(str(folder / "config.json"))

        assert from_folder.layers == from_file.layers == 2
        assert from_folder.source == str(folder / "config.json")
        assert from_folder.checkpoint_bytes is None

    def test_headers_of_all_shards_are_added_up_by_dtype(self, folder: Path) -> None:
        write_shard(folder / "model-00001-of-00002.safetensors", {"a": ("BF16", 300), "b": ("F8_E4M3", 50)})
        write_shard(folder / "model-00002-of-00002.safetensors", {"c": ("BF16", 100)})
        write_shard(folder / "consolidated.safetensors", {"a": ("BF16", 10_000)})

        shape = load_model(str(folder))

        assert shape.checkpoint_bytes == 450
        assert shape.checkpoint_bytes_by_dtype == (("BF16", 400), ("F8_E4M3", 50))

    def test_with_a_shard_missing_the_index_speaks(self, folder: Path) -> None:
        write_shard(folder / "model-00001-of-00002.safetensors", {"a": ("BF16", 300)})
        weights = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
        (folder / INDEX).write_bytes(as_bytes({"metadata": {"total_size": 900}, "weight_map": weights}))

        assert load_model(str(folder)).checkpoint_bytes == 900

    @pytest.mark.parametrize("data", [b"", b"short", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[]"])
    def test_a_damaged_shard_is_left_out_of_account(self, folder: Path, data: bytes) -> None:
        (folder / "model.safetensors").write_bytes(data)

        assert load_model(str(folder)).checkpoint_bytes is None

    def test_modelopts_own_file_is_read(self, folder: Path) -> None:
        quant = {
            "producer": {"name": "modelopt"},
            "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
        }
        (folder / "hf_quant_config.json").write_bytes(as_bytes(quant))

        shape = load_model(str(folder))

        assert shape.kv_cache_dtype_hint == "fp8"
        assert shape.quantization is not None

    def test_sentence_transformers_pool(self, folder: Path) -> None:
        (folder / "modules.json").write_text("[]")

        assert load_model(str(folder)).is_pooling

    def test_a_folder_without_a_config_says_what_it_is(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownModel, match=r"has no config.json.\nIs it the model's folder"):
            load_model(str(tmp_path))
        (tmp_path / "params.json").write_text("{}")
        with pytest.raises(UnknownModel, match=r"Mistral's params.json"):
            load_model(str(tmp_path))

    def test_an_adapter_names_its_base(self, tmp_path: Path) -> None:
        (tmp_path / "adapter_config.json").write_bytes(as_bytes({"base_model_name_or_path": "Qwen/Qwen3-8B"}))

        with pytest.raises(UnknownModel, match="LoRA adapter; plan its base model: Qwen/Qwen3-8B"):
            load_model(str(tmp_path))

    def test_a_damaged_config_names_the_file(self, folder: Path) -> None:
        (folder / "config.json").write_text('{"model_type": ')

        with pytest.raises(BadConfig, match=r"config.json is not valid JSON"):
            load_model(str(folder))

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").write_bytes(b"x")

        with pytest.raises(UnknownModel, match=r"is a file but no config\.json"):
            load_model(str(tmp_path / "model.safetensors"))


class TestCatalogueFirst:
    def test_a_packaged_model_asks_no_hub_and_shows_its_source(self) -> None:
        hub = FakeHub({})

        shape = load_model("qwen/qwen3-8b", hub=hub)

        assert hub.asked == []
        assert shape.name == "Qwen/Qwen3-8B"
        assert shape.source.startswith("kvroom's catalogue (published config), copied from github.com/")

    def test_a_revision_goes_to_the_hub(self) -> None:
        hub = FakeHub({"config.json": as_bytes(CONFIG)})

        assert load_model("Qwen/Qwen3-8B", hub=hub, revision="abc").layers == 2
        assert load_model("Qwen/Qwen3-8B", hub=hub, revision="abc", offline=True).layers == 36


class TestHub:
    def test_config_and_index_are_all_it_reads(self) -> None:
        hub = FakeHub(
            {
                "config.json": as_bytes(CONFIG),
                INDEX: as_bytes({"metadata": {"total_size": 1234}, "weight_map": {}}),
            }
        )

        shape = load_model("me/my-llama", hub=hub)

        assert shape.checkpoint_bytes == 1234
        assert shape.source == "the Hugging Face hub: me/my-llama"
        assert hub.asked == ["config.json", "hf_quant_config.json", INDEX, "modules.json"]

    def test_an_unsharded_checkpoint_is_read_by_its_header(self) -> None:
        hub = FakeHub({"config.json": as_bytes(CONFIG)}, Checkpoint(99, (("BF16", 99),)))

        shape = load_model("me/my-llama", hub=hub)

        assert (shape.checkpoint_bytes, shape.checkpoint_bytes_by_dtype) == (99, (("BF16", 99),))

    def test_sizes_that_cannot_be_had_are_done_without(self) -> None:
        hub = BrokenHub({"config.json": as_bytes(CONFIG), "hf_quant_config.json": b""})

        assert load_model("me/my-llama", hub=hub).checkpoint_bytes is None

    def test_a_damaged_index_is_done_without(self) -> None:
        hub = FakeHub({"config.json": as_bytes(CONFIG), INDEX: b"[1"})

        assert load_model("me/my-llama", hub=hub).checkpoint_bytes is None

    def test_a_model_that_cannot_be_read_lists_its_neighbours(self) -> None:
        with pytest.raises(UnknownModel, match=r"(?s)cannot be read.*Try later.*nearest: .*Qwen/Qwen3-8B") as caught:
            load_model("me/Qwen3-8B-tuned", hub=BrokenHub({}))

        assert caught.value.problem == "me/Qwen3-8B-tuned cannot be read."

    def test_a_repository_without_a_config_says_so(self) -> None:
        with pytest.raises(UnknownModel, match=r"zzzz/qqqq has no config.json"):
            load_model("zzzz/qqqq", hub=FakeHub({}))

    def test_a_pooling_model_is_known_by_its_modules(self) -> None:
        assert load_model("me/e", hub=FakeHub({"config.json": as_bytes(CONFIG), "modules.json": b"[]"})).is_pooling

    def test_overrides_apply(self) -> None:
        hub = FakeHub({"config.json": as_bytes(CONFIG)})

        shape = load_model("me/my-llama", hub=hub, overrides={"max_position_embeddings": 512})

        assert shape.position_limits == (("max_position_embeddings", 512),)


class TestReferences:
    @pytest.mark.parametrize("name", ["", "   "])
    def test_no_name(self, name: str) -> None:
        with pytest.raises(UsageError, match="No model was named"):
            load_model(name)

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("./nowhere", "no file or folder ./nowhere"),
            ("/no/such/config.json", "no file or folder"),
            ("a/b/c", "no file or folder a/b/c"),
            ("model.gguf", "GGUF"),
            ("unsloth/Qwen3-8B-GGUF:Q4_K_M", "GGUF"),
            ("https://huggingface.co/Qwen/Qwen3-8B", "address, not a model id"),
            ("hf.co/Qwen/Qwen3-8B", "address, not a model id"),
            ("s3://bucket/model", "address, not a model id"),
            ("Qwen/Qwen3 8B", "neither a file nor a model id"),
            ("x" * 10_000, "neither a file nor a model id"),
            ("nul\0byte", "neither a file nor a model id"),
            ("-rf/x", "neither a file nor a model id"),
        ],
    )
    def test_what_is_no_reference_is_refused_without_asking_anyone(self, name: str, says: str) -> None:
        hub = FakeHub({})

        with pytest.raises(UnknownModel, match=says):
            load_model(name, hub=hub)

        assert hub.asked == []

    def test_an_offline_finetune_lists_what_is_near(self) -> None:
        with pytest.raises(UnknownModel) as caught:
            load_model("kvroom-tests/Llama-3.1-8B-tuned", offline=True)

        message = str(caught.value)
        assert "not in the local Hugging Face cache, and kvroom is offline" in message
        assert "config.json and give its path" in message
        assert "meta-llama/Llama-3.1-8B" in message


def test_the_catalogue_reads_one_file_a_model() -> None:
    first, second = catalogue.find("Qwen/Qwen3-8B"), catalogue.find("qwen3-8b")

    assert first is not None
    assert second is not None
    assert first.config == second.config
