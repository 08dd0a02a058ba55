"""The dtype of the model and the dtype of its KV cache."""

from __future__ import annotations

from kvroom.devices.device import Device
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.refusals import refuse
from kvroom.vllm.rules import Rules

_DTYPES = {
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
}


def model_dtype(args: EngineArgs, shape: ModelShape, device: Device, rules: Rules, *, pooling: bool) -> str:
    """The dtype of weights and activations. Mirrors config/model.py: _get_and_verify_dtype."""
    asked = (args.dtype or "auto").lower()
    unsafe = shape.model_type in rules["float16_refused"]
    if asked != "auto":
        dtype = _DTYPES.get(asked, asked)
    elif rules["auto_dtype"] == "float16":
        dtype = "float16" if shape.dtype == "float32" else shape.dtype
    else:
        supported = [name for name in _supported(device) if not (unsafe and name == "float16")]
        preferred = "float16" if pooling and "float16" in supported else supported[0]
        dtype = preferred if shape.dtype == "float32" else shape.dtype
        dtype = dtype if dtype in supported else preferred
    if dtype == "float16" and unsafe:
        refuse(rules, "refuse_float16", model_type=shape.model_type)
    return dtype


def _supported(device: Device) -> tuple[str, ...]:
    capability = device.compute_capability
    if device.vendor == "NVIDIA" and capability is not None and capability < (8, 0):
        return ("float16", "float32")
    return ("bfloat16", "float16", "float32")


def check_bfloat16(dtype: str, device: Device, rules: Rules) -> None:
    """Refuse bfloat16 on GPUs before Ampere, as the worker does before it loads the model."""
    capability = device.compute_capability
    if dtype == "bfloat16" and device.vendor == "NVIDIA" and capability is not None and capability < (8, 0):
        text = f"{capability[0]}.{capability[1]}"
        refuse(rules, "refuse_bfloat16", stage="device_memory_check", gpu=device.name, capability=text)


def kv_cache_dtype(args: EngineArgs, shape: ModelShape, device: Device, rules: Rules) -> str:
    """``--kv-cache-dtype`` with ``auto`` turned into what checkpoint and architecture ask for."""
    dtype = args.kv_cache_dtype or "auto"
    hint = shape.kv_cache_dtype_hint
    method = shape.quantization.method if shape.quantization is not None else ""
    if hint and method.startswith("modelopt") and dtype == "auto":
        dtype = rules["modelopt_kv_dtype"].get(hint, "auto")
    elif hint and method == "compressed-tensors":
        rule = rules["compressed_tensors_kv"]
        dtype = "fp8" if rule == "always" or (rule == "auto" and dtype == "auto") else dtype
    if shape.architecture == "DeepseekV32ForCausalLM":
        dtype = rules["deepseek_v32_kv"].get("fp8" if dtype.startswith("fp8") else dtype, dtype)
    capability = device.compute_capability
    if dtype == "auto" and capability is not None and capability[0] == 10:
        dtype = rules["blackwell_fp8_kv"].get(shape.architecture, dtype)
    return dtype
