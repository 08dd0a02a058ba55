import pytest

from kvroom.models.fields import Fields
from kvroom.models.limits import read_rope
from kvroom.models.shape import Rope


@pytest.mark.parametrize(
    ("config", "rope"),
    [
        ({}, Rope()),
        ({"rope_scaling": None}, Rope()),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, Rope("linear", 4.0)),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}},
            Rope("yarn", 40.0, 4096),
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, Rope()),
        (
            {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096},
            Rope("longrope", 1.0, 4096),
        ),
        (
            {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default"},
                    "full_attention": {"rope_type": "linear", "factor": 8.0},
                }
            },
            Rope("linear", 8.0),
        ),
    ],
)
def test_rope_is_read_from_either_field_and_from_each_layer_type(config: dict, rope: Rope) -> None:
    assert read_rope(Fields(config)) == rope
