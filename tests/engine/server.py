"""A release of vLLM that answers questions about its KV cache planner, one JSON line each.

Run by a Python that has torch and vLLM's requirements, with the release's tree first on PYTHONPATH.
Nothing of kvroom is imported here: specs are built from vLLM's own classes and planned by vLLM's own
functions; only the configuration objects are stand-ins.
"""

import contextlib
import copy
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import sys
import types
from fractions import Fraction
from types import SimpleNamespace as Namespace

STUBBED = ("diskcache", "flashinfer", "gguf")
KEPT_LINES = (
    "GPU KV cache size",
    "Maximum concurrency",
    "Add ",
    "Auto-fit",
    "Overriding",
    "Hybrid KV",
    "Multiplying",
)


class Stub(types.ModuleType):
    """A module whose every attribute is a class, for imports that planning never calls."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {})
        setattr(self, name, value)
        return value


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of STUBBED, and compiled vLLM extensions, that are not installed."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] in STUBBED or fullname.startswith("vllm._"):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


class Recorder:
    """A logger that keeps what vLLM would have printed."""

    def __init__(self):
        self.lines = []

    def _keep(self, message, *args, **_):
        text = str(message) % args if args else str(message)
        if text.startswith(KEPT_LINES):
            self.lines.append(text)

    info = info_once = warning = warning_once = debug = _keep


def prepare_transformers():
    """Let an old release register a config class that the installed transformers has by now."""
    from transformers import AutoConfig

    register = AutoConfig.register
    AutoConfig.register = staticmethod(lambda *args, **kwargs: register(*args, **{**kwargs, "exist_ok": True}))


def optional(name):
    """The module ``name``, or None where this release has none or cannot import it."""
    try:
        return importlib.import_module(name)
    except Exception:
        return None


class Pretended(types.ModuleType):
    """A package that is not installed: whatever is imported from it is an empty class."""

    __path__: tuple = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextlib.contextmanager
def pretended(package):
    """While a module of vLLM is imported, let it import ``package``, which a CPU machine lacks."""

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == package:
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
            return None

        def create_module(self, spec):
            return Pretended(spec.name)

        def exec_module(self, module):
            """Nothing to run."""

    finder = Finder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


class Release:
    """The planner functions of the vLLM on the path."""

    def __init__(self):
        import torch

        self.torch = torch
        self.kinds = importlib.import_module("vllm.v1.kv_cache_interface")
        utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        self.planner = optional("vllm.v1.core.kv_cache_planning") or utils
        self.utils = utils
        self.log = Recorder()
        for module in (self.planner, utils):
            module.logger = self.log
        self.states = optional("vllm.model_executor.layers.mamba.mamba_utils")
        self.attention = optional("vllm.model_executor.layers.attention.attention")
        self.latent = optional("vllm.model_executor.layers.attention.mla_attention")
        layouts = optional("vllm.v1.kv_cache_layout")
        self.layouts = layouts and layouts.KVCacheLayout
        self.backends = optional("vllm.v1.attention.backend") or optional("vllm.attention.backends.abstract")
        self.platform = optional("vllm.platforms.interface")
        self.hybrid = getattr(optional("vllm.model_executor.models.config"), "HybridAttentionMambaModelConfig", None)
        self.parallel = optional("vllm.distributed.utils")
        self._neutralise()

    def _neutralise(self):
        """Replace what would look for real models, devices and current configurations."""
        nothing = lambda *args, **kwargs: contextlib.nullcontext()  # noqa: E731
        for name in ("vllm.config", "vllm.config.vllm"):
            module = optional(name)
            if module is not None and hasattr(module, "set_current_vllm_config"):
                module.set_current_vllm_config = nothing
        config = optional("vllm.model_executor.models.config")
        if config is not None and hasattr(config, "MambaModelConfig"):
            config.MambaModelConfig.verify_and_update_config = staticmethod(lambda _: None)
        for name in ("vllm.model_executor.models", "vllm.model_executor.models.config"):
            module = optional(name)
            if module is not None and hasattr(module, "ModelRegistry"):
                module.ModelRegistry = Namespace(resolve_model_cls=lambda *_, **__: (self.model_class, ""))

    # Specs.

    def dtype(self, name):
        return getattr(self.torch, name)

    def storage(self, q, cache_dtype):
        if cache_dtype == "auto":
            return self.dtype(q["dtype"])
        return self.dtype(cache_dtype) if cache_dtype in ("bfloat16", "float16", "float32") else self.torch.uint8

    def make(self, name, **values):
        """An instance of spec class ``name`` with those of ``values`` that this release knows."""
        kind = getattr(self.kinds, name)
        known = inspect.signature(kind.__init__).parameters
        return kind(**{key: value for key, value in values.items() if key in known})

    def quantised(self, cache_dtype):
        mode = getattr(self.kinds, "get_kv_quant_mode", None)
        return mode(cache_dtype) if mode else None

    def attention_values(self, q, cache, block):
        values = {
            "block_size": block,
            "num_kv_heads": max(1, cache["kv_heads"] // q["tp"]),
            "head_size": cache["head_size"],
            "head_size_v": cache["head_size_v"],
            "dtype": self.storage(q, q["kv_cache_dtype"]),
            "use_mla": False,
            "indexes_kv_by_block_stride": q["strided"],
        }
        mode = self.quantised(q["kv_cache_dtype"])
        if mode is not None:
            values["kv_quant_mode"] = mode
        return values

    def spec(self, q, cache, config):
        block = config.cache_config.block_size
        kind = cache["kind"]
        if kind == "state":
            return self.state_spec(q, cache, config)
        if kind == "mla":
            return self.customised(self.latent_spec(q, cache, block))
        if kind == "compressed":
            return self.compressed_spec(cache, block)
        values = self.attention_values(q, cache, block)
        if kind == "sliding":
            shared = config.cache_config.skip_page_size_padded
            values |= {
                "sliding_window": cache["window"],
                "block_size": self.window_block(q, cache, block, shared),
                "page_size_padded": shared,
            }
            return self.customised(self.make("SlidingWindowSpec", **values))
        if kind == "chunked":
            values.pop("head_size_v")
            known = hasattr(self.kinds, "ChunkedLocalAttentionSpec")
            name = "ChunkedLocalAttentionSpec" if known else "FullAttentionSpec"
            return self.customised(self.make(name, attention_chunk_size=cache["window"] if known else None, **values))
        if kind == "cross":
            values.pop("head_size_v")
            return self.customised(self.make("CrossAttentionSpec", **values))
        if q["kv_cache_dtype"].startswith("turboquant_") and hasattr(self.kinds, "TQFullAttentionSpec"):
            config = importlib.import_module("vllm.model_executor.layers.quantization.turboquant.config")
            chosen = config.TurboQuantConfig.from_cache_dtype(q["kv_cache_dtype"], cache["head_size"])
            values |= {"tq_slot_size": chosen.slot_size_aligned, "head_size_v": cache["head_size"]}
            values.pop("kv_quant_mode")
            return self.make("TQFullAttentionSpec", **values)
        return self.customised(self.make("FullAttentionSpec", **values))

    def compressed_spec(self, cache, block):
        """One of the caches of DeepSeek-V4's layers, as its modules ask for them in the packed format."""
        ratio = cache["ratio"]
        values = {
            "block_size": cache["block"] or block,
            "num_kv_heads": 1,
            "max_tp_shards": 1,
            "head_size": cache["head_size"],
            "dtype": self.dtype(cache["dtype"]),
            "alignment": 576,
            "compress_ratio": ratio,
            "tokens_per_state": ratio,
        }
        if cache["rows"]:
            values |= {
                "cache_dtype_str": "fp8_ds_mla",
                "model_version": "deepseek_v4",
                "state_content_bytes": 584,
                "kv_quant_mode": self.quantised("fp8_ds_mla"),
            }
        if cache["window"] is None:
            return self.make("MLAAttentionSpec", **values)
        return self.make("SlidingWindowMLASpec", sliding_window=cache["window"], **values)

    def latent_spec(self, q, cache, block):
        cache_dtype = "auto" if cache.get("indexer") else self.sparse_format(q, cache)
        values = {
            "block_size": block,
            "num_kv_heads": 1,
            "head_size": cache["head_size"],
            "dtype": self.torch.uint8 if cache.get("indexer") else self.storage(q, cache_dtype),
            "use_mla": True,
            "cache_dtype_str": None if cache.get("indexer") else cache_dtype,
        }
        mode = self.quantised(cache_dtype)
        if mode is not None:
            values["kv_quant_mode"] = mode
        if cache_dtype in ("fp8_ds_mla", "nvfp4_ds_mla"):
            values["state_content_bytes"] = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}[cache_dtype]
        name = "MLAAttentionSpec" if hasattr(self.kinds, "MLAAttentionSpec") else "FullAttentionSpec"
        return self.make(name, **values)

    def sparse_format(self, q, cache):
        """What a sparse layer stores: by vLLM's function where the release has it."""
        choose = getattr(self.latent, "_canonicalize_sparse_mla_kv_cache_dtype", None)
        if choose is None or not cache["sparse"]:
            return cache["stored"]
        return choose(Namespace(get_name=lambda: q["backend"]), q["kv_cache_dtype"])

    def window_block(self, q, cache, block, shared):
        choose = getattr(self.attention, "_largest_kernel_block_within", None)
        if choose is None:
            return block
        values = self.attention_values(q, cache, 1) | {"sliding_window": cache["window"]}
        one = self.customised(self.make("SlidingWindowSpec", **values))
        token = one.real_page_size_bytes
        optional_budget = "None" in str(inspect.signature(choose).parameters["page_budget"].annotation)
        budget = None if optional_budget else token * block
        return choose(self.backend(q), token, shared or budget, block)

    def state_spec(self, q, cache, config):
        values = {
            "shapes": tuple(map(tuple, self.state_shapes(q, cache))),
            "dtypes": self.state_dtypes(q, cache),
            "dtype": self.dtype(cache["dtypes"][0]),
            "block_size": config.cache_config.mamba_block_size,
            "page_size_padded": config.cache_config.mamba_page_size_padded,
            "mamba_cache_mode": q["mode"],
            "num_speculative_blocks": q["drafts"],
            "num_prefill_checkpoint_blocks": cache.get("checkpoints", 0),
        }
        return self.make("MambaSpec", **values)

    def state_shapes(self, q, cache):
        """The shapes that this release's MambaStateShapeCalculator gives, or those of the question."""
        maker = getattr(self.states, "MambaStateShapeCalculator", None)
        function = getattr(maker, cache["function"], None)
        if function is None:
            return cache["shapes"]
        known = inspect.signature(function).parameters
        values = {**cache["values"], "num_spec": q["drafts"], "tp_world_size": q["tp"], "tp_size": q["tp"]}
        return function(**{key: value for key, value in values.items() if key in known})

    def state_dtypes(self, q, cache):
        """One dtype per state: a release may hold the convolution's inputs in several states."""
        *conv, recurrent = (self.dtype(name) for name in cache["dtypes"])
        missing = len(self.state_shapes(q, cache)) - len(cache["dtypes"])
        return (*conv, *(conv[:1] * missing), recurrent)

    def backend(self, q):
        multiple = self.backends.MultipleOf
        sizes = [multiple(int(s[:-1])) if isinstance(s, str) else s for s in q["kernel_sizes"]]
        release = self

        class Backend:
            """Stands for an attention backend with these kernel sizes."""

            @staticmethod
            def get_supported_kernel_block_sizes(kv_cache_spec=None):
                return sizes

            @classmethod
            def customize_spec(cls, spec):
                return release.customised(spec)

        return Backend

    def customised(self, spec):
        """What the backend that stores this format makes of the spec (since 0.28)."""
        base = getattr(self.backends, "AttentionBackend", None)
        mode = getattr(spec, "kv_quant_mode", None)
        if mode is None or not hasattr(base, "customize_spec"):
            return spec
        latent = isinstance(spec, getattr(self.kinds, "MLAAttentionSpec", ()))
        if mode.is_per_token_head and not latent:
            return self.backend_class("triton_attn", "TritonAttentionBackend").customize_spec(spec)
        if mode.is_nvfp4:
            return self.backend_class("flashinfer", "FlashInferBackend").customize_spec(spec)
        if mode.is_turboquant:
            return self.backend_class("turboquant_attn", "TurboQuantAttentionBackend").customize_spec(spec)
        return spec

    @staticmethod
    def backend_class(module, name):
        return getattr(importlib.import_module(f"vllm.v1.attention.backends.{module}"), name)

    # The configuration, as far as the planner reads it.

    def config(self, q):
        length = q["max_model_len"]
        first = next((c for c in q["caches"] if c["kind"] not in ("state", "compressed")), None)
        attention = first or {"kv_heads": 1, "head_size": 1, "kind": "full"}
        heads = 1 if attention["kind"] == "mla" else max(1, attention["kv_heads"] // q["tp"])
        model = Namespace(
            max_model_len=length,
            original_max_model_len=-1 if q["auto"] else length,
            dtype=self.dtype(q["dtype"]),
            use_mla=attention["kind"] == "mla",
            architecture="",
            _model_info=Namespace(architecture=""),
            architectures=[""],
            hf_config=Namespace(model_type="llama"),
            get_num_kv_heads=lambda _: heads,
            get_head_size=lambda: attention["head_size"],
            get_mamba_chunk_size=lambda: q["chunk"],
            supports_kv_cache_grouping=False,
            is_hybrid=True,
        )
        cache = Namespace(
            block_size=q["block_size"],
            cache_dtype=q["kv_cache_dtype"],
            num_gpu_blocks_override=q["override"],
            mamba_cache_mode=q["mode"],
            mamba_block_size=q["block_size"] if q["own_modes"] and q["mode"] != "none" else length,
            user_specified_mamba_block_size=False,
            mamba_page_size_padded=None,
            enable_prefix_caching=q["prefix_caching"],
            calculate_kv_scales=False,
            kv_cache_dtype_skip_layers=list(q["skipped"]),
            skip_page_size_padded=None,
            prefix_cache_retention_interval=None,
            kv_cache_layout="BLHNC" if q["packed"] else "LBNHC",
        )
        cache.get_resolved_kv_cache_layout = lambda: self.layouts[cache.kv_cache_layout]
        return Namespace(
            model_config=model,
            cache_config=cache,
            scheduler_config=Namespace(
                max_num_batched_tokens=q["batched"],
                max_num_encoder_input_tokens=q["encoder_tokens"],
                disable_hybrid_kv_cache_manager=not q["hybrid"],
            ),
            parallel_config=Namespace(
                decode_context_parallel_size=q["dcp"],
                prefill_context_parallel_size=q["pcp"],
                tensor_parallel_size=q["tp"],
                pipeline_parallel_size=len(q["stages"]),
            ),
            attention_config=Namespace(hisparse_config=None, backend=None),
            device_config=Namespace(device_type="cuda"),
            speculative_config=None,
            kv_transfer_config=None,
            additional_config={},
            compilation_config=Namespace(static_forward_context={}),
            max_in_flight_tokens=q["batched"] * q["batches"],
            num_prefill_lookahead_tokens=0,
            num_speculative_tokens=q["drafts"],
        )

    def align(self, q, config):
        """Let vLLM choose the blocks of a model that mixes attention with states, or formats."""
        self.align_states(q, config)
        platform = getattr(self.platform, "Platform", None)
        if q["skipped"] and hasattr(platform, "_align_heterogeneous_kv_block_size"):
            platform._align_heterogeneous_kv_block_size(config, self.backend(q))

    def align_states(self, q, config):
        states = [cache for cache in q["caches"] if cache["kind"] == "state"]
        if not states or len(states) == len(q["caches"]):
            return
        shapes = tuple(map(tuple, self.state_shapes(q, states[0])))
        dtypes = self.state_dtypes(q, states[0])
        self.model_class = Namespace(
            get_mamba_state_shape_from_config=lambda _: shapes,
            get_mamba_state_dtype_from_config=lambda _: dtypes,
        )
        platform = getattr(self.platform, "Platform", None)
        if hasattr(platform, "_align_hybrid_block_size"):
            for name in ("_find_non_ssm_backends",):
                if hasattr(platform, name):
                    setattr(platform, name, classmethod(lambda cls, _: [self.backend(q)]))
            platform._align_hybrid_block_size(config, self.backend(q))
        elif self.hybrid is not None:
            cache = config.cache_config
            usual, cache.mamba_block_size = cache.mamba_block_size, None
            self.hybrid.verify_and_update_config(config)
            cache.mamba_block_size = cache.mamba_block_size or usual

    # Planning.

    def answer(self, q):
        self.log.lines = []
        config = self.config(q)
        try:
            self.align(q, config)
            plain = {**q, "kv_cache_dtype": "auto"}
            known = [
                [
                    self.spec(question, cache, config) if wanted else None
                    for question, wanted in ((q, True), (plain, q["skipped"]))
                ]
                for cache in q["caches"]
            ]
            workers = []
            for owned in q["stages"]:
                mine = {}
                for position, (index, number, skipped) in enumerate(q["layers"]):
                    if index in owned:
                        mine[f"layers.{position}.{index}"] = copy.copy(known[number][skipped])
                workers.append(mine)
            result = {
                "pages": [spec.page_size_bytes for spec, _ in known],
                "block": config.cache_config.block_size,
                "stages": [
                    list(range(*self.parallel.get_pp_indices(q["decoder_layers"], rank, len(q["stages"]))))
                    for rank in range(len(q["stages"]))
                ],
            }
            return {**result, **self.plan(config, workers, q)}
        except (ValueError, AssertionError, NotImplementedError, TypeError, ZeroDivisionError) as error:
            return {"error": str(error), "type": type(error).__name__, "lines": self.log.lines}

    def plan(self, config, workers, q):
        planner = self.planner
        workers = [dict(worker) for worker in workers]
        if hasattr(planner, "get_global_kv_cache_groups"):
            groups = planner.get_global_kv_cache_groups(config, workers)
            plans = planner.get_kv_cache_configs(config, workers, list(q["available"]), groups)
        elif hasattr(planner, "get_kv_cache_configs"):
            plans = planner.get_kv_cache_configs(config, workers, list(q["available"]))
        else:
            plans = [
                planner.get_kv_cache_config(config, worker, available)
                for worker, available in zip(workers, q["available"], strict=True)
            ]
            planner.unify_kv_cache_configs(plans)
        if hasattr(self.utils, "update_kv_cache_capacity"):
            scheduler = self.utils.generate_scheduler_kv_cache_config(plans)
            self.utils.update_kv_cache_capacity(config, scheduler)
        groups = [
            [len(group.layer_names), group.kv_cache_spec.block_size, type(group.kv_cache_spec).__name__]
            for group in plans[0].kv_cache_groups
        ]
        return {
            "num_blocks": plans[0].num_blocks,
            "max_model_len": config.model_config.max_model_len,
            "groups": groups,
            "lines": self.log.lines,
        }


def plain(value):
    """``value`` for JSON."""
    return float(value) if isinstance(value, Fraction) else str(value)


def main():
    answers = sys.stdout
    sys.stdout = sys.stderr
    sys.meta_path.append(StubFinder())
    prepare_transformers()
    release = Release()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = release.answer(json.loads(line))
        except Exception as error:  # a fault of this server: the test shows it
            import traceback

            answer = {"fault": traceback.format_exc(), "text": repr(error)}
        print(json.dumps(answer, default=plain), file=answers, flush=True)


if __name__ == "__main__":
    main()
