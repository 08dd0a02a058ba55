import pytest

from kvroom.models.fields import Fields
from kvroom.models.heads import Heads, read_heads

PLAIN = {"hidden_size": 64, "num_attention_heads": 4}
FALCON = {"model_type": "falcon", "hidden_size": 71 * 64, "num_attention_heads": 71, "multi_query": True}
GLM = {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "multi_query_group_num": 2}


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (PLAIN, Heads(4, 4, 16)),
        ({**PLAIN, "num_key_value_heads": 2, "head_dim": 128}, Heads(4, 2, 128)),
        ({**PLAIN, "head_dim": 0}, Heads(4, 4, 16)),
        ({"n_embd": 64, "n_head": 4}, Heads(4, 4, 16)),
        (FALCON, Heads(71, 1, 64)),
        (
            {
                "model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8,
                "multi_query": True, "new_decoder_architecture": True,
            },
            Heads(128, 8, 64),
        ),
        ({"model_type": "gpt_bigcode", "n_embd": 2048, "n_head": 16}, Heads(16, 1, 128)),
        (
            {**GLM, "multi_query_attention": True}, Heads(32, 2, 128),
        ),
        (GLM, Heads(32, 32, 128)),
        ({"d_model": 6144, "n_heads": 48, "attn_config": {"kv_n_heads": 8}}, Heads(48, 8, 128)),
        ({"hidden_size": 64}, Heads(0, 0, 0)),
    ],
)  # fmt: skip
def test_heads_under_the_names_that_configs_use(config: dict, heads: Heads) -> None:
    assert read_heads(Fields(config)) == heads
