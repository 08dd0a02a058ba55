"""A model small enough for any machine: half a million parameters with weights of chance, and a byte-level tokenizer.

One token takes 1 KiB of cache: 4 layers, 2 KV heads of 32, two bytes. Serve it with ``--load-format dummy``.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE(unk_token=None))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet)
tokenizer.train_from_iterator(["a line of words from which pairs of letters are learned"] * 3, trainer)
tokenizer.save(sys.argv[1])
"""
KNOBS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|im_end|>",
    "bos_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
    "model_max_length": 1 << 20,
    "chat_template": "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
}


def make(folder: Path, python: Path) -> Path:
    """The model's folder; ``python`` is the engine's, which has ``tokenizers``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(KNOBS), "utf-8")
    subprocess.run([str(python), "-c", TOKENIZER, str(folder / "tokenizer.json")], check=True)
    return folder
