"""Every weight of a model from its config.json, in closed form: a few dozen entries a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvroom.models.defaults import with_class_defaults
from kvroom.models.fields import Fields
from kvroom.models.weights import (
    classic,
    dense,
    drafts,
    gemma,
    generic,
    linear_attention,
    mamba,
    mla,
    moe,
    towers,
    vision,
)
from kvroom.models.weights.buffers import buffers_of
from kvroom.models.weights.stack import Stack
from kvroom.models.weights.tensor import Part, Tensor

Lister = Callable[[Stack, Fields, str], None]
"""Adds the weights of a language model: (stack, text config, architecture)."""

LISTERS: dict[str, Lister] = {
    **dict.fromkeys(dense.STYLES, dense.dense),
    **dict.fromkeys(moe.MOES, moe.moe_decoder),
    "Llama4ForCausalLM": moe.llama4,
    "MiniMaxM3ForCausalLM": moe.minimax_m3,
    "MiniMaxM3SparseForCausalLM": moe.minimax_m3,
    "MiMoV2FlashForCausalLM": moe.mimo_v2,
    "MiMoV2ForCausalLM": moe.mimo_v2,
    "Step3p5ForCausalLM": moe.step3,
    "Step3p7FlashForCausalLM": moe.step3,
    "DeepseekV2ForCausalLM": mla.deepseek,
    "DeepseekV3ForCausalLM": mla.deepseek,
    "DeepseekV32ForCausalLM": mla.deepseek,
    "GlmMoeDsaForCausalLM": mla.deepseek,
    "Glm4MoeLiteForCausalLM": mla.deepseek,
    "Mistral4ForCausalLM": mla.deepseek,
    "MistralLarge3ForCausalLM": mla.deepseek,
    "MiniCPM3ForCausalLM": mla.minicpm3,
    "DeepseekV4ForCausalLM": mla.deepseek_v4,
    "Gemma3nForCausalLM": gemma.gemma3n,
    "Gemma4ForCausalLM": gemma.gemma4,
    "MambaForCausalLM": mamba.mamba,
    "Mamba2ForCausalLM": mamba.mamba,
    "FalconMambaForCausalLM": mamba.mamba,
    "JambaForCausalLM": mamba.jamba,
    "NemotronHForCausalLM": mamba.nemotron_h,
    "GraniteMoeHybridForCausalLM": mamba.granite_hybrid,
    "FalconH1ForCausalLM": mamba.falcon_h1,
    "Qwen3NextForCausalLM": linear_attention.qwen_next,
    "Qwen3_5ForCausalLM": linear_attention.qwen_next,
    "Qwen3_5MoeForCausalLM": linear_attention.qwen_next,
    "Lfm2ForCausalLM": linear_attention.lfm2,
    "Lfm2MoeForCausalLM": linear_attention.lfm2,
    "KimiLinearForCausalLM": linear_attention.kimi_linear,
    "GPT2LMHeadModel": classic.gpt2,
    "GPTBigCodeForCausalLM": classic.gpt2,
    "OPTForCausalLM": classic.opt,
    "FalconForCausalLM": classic.falcon,
    "RWForCausalLM": classic.falcon,
    "BloomForCausalLM": classic.bloom,
    "GPTJForCausalLM": classic.gptj,
    "DeciLMForCausalLM": classic.deci,
    "BertModel": classic.bert,
    "BertEmbeddingModel": classic.bert,
    "RobertaModel": classic.bert,
    "XLMRobertaModel": classic.bert,
    "ModernBertModel": classic.modernbert,
    "WhisperForConditionalGeneration": classic.whisper,
    "MllamaForCausalLM": classic.mllama,
}
MULTIMODAL: dict[str, tuple[str, vision.Tower]] = {
    "Qwen2VLForConditionalGeneration": ("Qwen2ForCausalLM", towers.qwen_vl),
    "Qwen2_5_VLForConditionalGeneration": ("Qwen2ForCausalLM", towers.qwen_vl),
    "Qwen3VLForConditionalGeneration": ("Qwen3ForCausalLM", towers.qwen_vl),
    "Qwen3VLMoeForConditionalGeneration": ("Qwen3MoeForCausalLM", towers.qwen_vl),
    "Qwen3_5ForConditionalGeneration": ("Qwen3_5ForCausalLM", towers.qwen_vl),
    "Qwen3_5MoeForConditionalGeneration": ("Qwen3_5MoeForCausalLM", towers.qwen_vl),
    "Gemma3ForConditionalGeneration": ("Gemma3ForCausalLM", towers.gemma3_mm),
    "Gemma4ForConditionalGeneration": ("Gemma4ForCausalLM", towers.gemma4_mm),
    "LlavaForConditionalGeneration": ("LlamaForCausalLM", towers.llava),
    "Mistral3ForConditionalGeneration": ("MistralForCausalLM", towers.mistral3),
    "Llama4ForConditionalGeneration": ("Llama4ForCausalLM", towers.llama4_mm),
    "MllamaForConditionalGeneration": ("MllamaForCausalLM", towers.mllama_mm),
    "Glm4vForConditionalGeneration": ("Glm4ForCausalLM", towers.glm4v),
    "Glm4vMoeForConditionalGeneration": ("Glm4MoeForCausalLM", towers.glm4v),
    "Lfm2VlForConditionalGeneration": ("Lfm2ForCausalLM", towers.lfm2_vl),
    "KimiVLForConditionalGeneration": ("DeepseekV3ForCausalLM", towers.moonvit),
    "KimiK25ForConditionalGeneration": ("DeepseekV3ForCausalLM", towers.moonvit),
    "KimiK3ForConditionalGeneration": ("KimiLinearForCausalLM", towers.moonvit),
    "MiniMaxM3SparseForConditionalGeneration": ("MiniMaxM3SparseForCausalLM", towers.minimax_vl),
    "VoxtralForConditionalGeneration": ("LlamaForCausalLM", towers.voxtral),
}
"""Multimodal architectures: their language model's lister and their tower's."""
DRAFTS: dict[str, Lister] = {
    "Qwen3NextForCausalLM": drafts.qwen_draft,
    "Qwen3_5ForCausalLM": drafts.qwen_draft,
    "Qwen3_5MoeForCausalLM": drafts.qwen_draft,
    "MiMoForCausalLM": drafts.mimo_draft,
    "MiMoV2FlashForCausalLM": drafts.mimo_draft,
    "NemotronHForCausalLM": drafts.nemotron_draft,
    "DeepseekV4ForCausalLM": drafts.v4_draft,
}
"""Architectures whose multi-token-prediction layers are not DeepSeek's kind."""


BY_TYPE: dict[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma3n_text": "Gemma3nForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "modernbert": "ModernBertModel",
}
"""What lists a language model whose architecture has another name: its config's ``model_type`` tells."""
HEADLESS = ("ForSequenceClassification", "ForTokenClassification", "RewardModel", "ForEmbedding")
"""Endings of architectures that are served without an output head."""


def is_known(architecture: str) -> bool:
    """Whether ``tensors_of`` lists ``architecture`` by its own rule and not by the generic one."""
    return architecture in LISTERS or architecture in MULTIMODAL


def tensors_of(config: Fields, architecture: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The weights of the main model and those of its multi-token-prediction layers.

    ``config`` is the whole config.json. An architecture that is not known is listed from its attention,
    feed-forward and expert fields (``is_known`` tells). Raises BadConfig for a config that lacks the
    widths or holds absurd ones.
    """
    name, tower = MULTIMODAL.get(architecture, (architecture, None))
    if name not in LISTERS:
        name = BY_TYPE.get(str(config.text.raw.get("model_type")), name)
    config = Fields(with_class_defaults(config.raw), config.where)
    text = _language_part(config)
    stack = Stack()
    LISTERS.get(name, generic.generic)(stack, text, name)
    vision_config = config.sub("vision_config", "audio_config")
    if tower is not None and vision_config is not None:
        tower(stack, config, vision_config, text)
    elif tower is None and vision_config is not None and architecture not in LISTERS:
        vision.generic_tower(stack, config, vision_config, text)
    buffers_of(stack, text, name, vision_config)
    if architecture.endswith(HEADLESS):
        stack.tensors[:] = [tensor for tensor in stack.tensors if tensor.part is not Part.LM_HEAD]
    extra = Stack()
    if drafts.draft_count(text):
        DRAFTS.get(name, drafts.deepseek_draft)(extra, text, name)
    return tuple(stack.tensors), tuple(replace(tensor, part=Part.DRAFT) for tensor in extra.tensors)


def _language_part(config: Fields) -> Fields:
    """The language model's fields; the head is the embedding only where no level says that it is not."""
    text = config.text
    if config.raw.get("tie_word_embeddings") is False:
        return Fields({**text.raw, "tie_word_embeddings": False}, text.where)
    return text
