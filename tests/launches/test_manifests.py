"""Kubernetes objects, KServe services, Ray services and Helm values to launches with their lines."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kvroom.devices.catalogue import find_device
from kvroom.launches.launch import DEFAULT_SHARED_MEMORY, Launch, Unanswered
from kvroom.launches.manifests import read_manifest
from kvroom.launches.manifests.cards import _labels, card_of_label
from kvroom.units import GIB


def one(text: str) -> Launch:
    (found,) = read_manifest(dedent(text).lstrip("\n"), "m.yaml")
    assert isinstance(found, Launch), found
    return found


def unanswered(text: str) -> Unanswered:
    (found,) = read_manifest(dedent(text).lstrip("\n"), "m.yaml")
    assert isinstance(found, Unanswered), found
    return found


POD = """
    containers:
    - name: vllm
      image: vllm/vllm-openai:v0.28.0
      args: [--model, Qwen/Qwen3-8B, -tp, "2"]
      resources: {limits: {nvidia.com/gpu: 2}}
"""
SPEC = dedent(POD).strip("\n")


def indented(by: int) -> str:
    return SPEC.replace("\n", "\n" + " " * by)


@pytest.mark.parametrize(
    "text",
    [
        f"kind: Pod\nspec:\n  {indented(2)}",
        f"kind: Deployment\nspec:\n  template:\n    spec:\n      {indented(6)}",
        f"kind: StatefulSet\nspec:\n  template:\n    spec:\n      {indented(6)}",
        f"kind: Job\nspec:\n  template:\n    spec:\n      {indented(6)}",
        f"kind: CronJob\nspec:\n  jobTemplate:\n    spec:\n      template:\n        spec:\n          {indented(10)}",
        f"kind: Rollout\nspec:\n  template:\n    spec:\n      {indented(6)}",
        f"kind: List\nitems:\n- kind: Pod\n  spec:\n    {indented(4)}",
        f"---\n# first\n---\nkind: Pod\nspec:\n  {indented(2)}\n---\nkind: Service\nspec: {{ports: []}}\n...\n",
    ],
)
def test_a_pod_is_found_whatever_makes_it(text: str) -> None:
    launch = one(text)
    assert launch.tokens == ("--model", "Qwen/Qwen3-8B", "-tp", "2")
    assert (launch.version_hint, launch.gpu_hint) == ("0.28.0", 2)
    assert launch.line == next(n for n, row in enumerate(text.split("\n"), 1) if "args" in row)
    assert launch.pod is not None
    assert launch.pod.shared_memory == DEFAULT_SHARED_MEMORY


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ('command: [vllm, serve, m]\n  args: ["-tp", "2"]', ("m", "-tp", "2")),
        ('command: ["python3", "-m", "vllm.entrypoints.openai.api_server"]\n  args: [--model=m]', ("--model=m",)),
        (
            "command: [sh, -c]\n  args:\n  - |\n    export TP=2\n    exec vllm serve m \\\n      -tp $TP",
            ("m", "-tp", "2"),
        ),
        ("command: [/bin/bash, -lc, 'vllm serve m -tp 2 | tee log']", ("m", "-tp", "2")),
        ("command: [sh, -c, 'vllm serve m $@', --]\n  args: [-tp, '2']", ("m", "-tp", "2")),
        ("args: [m, --max-model-len, $(LEN)]\n  env: [{name: LEN, value: '4096'}]", ("m", "--max-model-len", "4096")),
        ("args: [m, $(B)]\n  env: [{name: A, value: x}, {name: B, value: $(A)-y}]", ("m", "x-y")),
        ("args: [m, $$(HOME), $(UNSET)]", ("m", "$(HOME)", "$(UNSET)")),
        ("args: &a [m, -tp, '2']", ("m", "-tp", "2")),
    ],
)
def test_command_args_and_environment_are_put_together_as_kubernetes_does(words: str, tokens: tuple[str, ...]) -> None:
    rest = words.replace("\n", "\n  ")
    text = f"kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.28.0\n    {rest}"
    assert one(text).tokens == tokens


def test_each_word_has_its_line() -> None:
    launch = one(
        """
        kind: Pod
        spec:
          containers:
          - name: a
            image: vllm/vllm-openai:v0.28.0
            command: ["/bin/sh", "-c"]
            args:
            - >-
              vllm serve Qwen/Qwen3-8B
              --port 8000
              --max-model-len 4096
        """
    )
    assert launch.token_lines == (9, 10, 10, 11, 11)


def test_shared_memory_probes_and_secrets_are_read() -> None:
    launch = one(
        """
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
          - name: a
            image: vllm/vllm-openai:v0.28.0
            args: [m]
            env:
            - name: HF_TOKEN
              value: hf_abcdefghijklmnop
            - name: VLLM_API_KEY
              valueFrom: {secretKeyRef: {name: s, key: k}}
            - {name: HUGGING_FACE_HUB_TOKEN, value: <your token>}
            startupProbe: {periodSeconds: 5, failureThreshold: 60, initialDelaySeconds: 30}
            livenessProbe: {periodSeconds: 1}
            volumeMounts: [{name: dshm, mountPath: /dev/shm}]
          volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
        """
    )
    assert launch.pod is not None
    assert launch.pod.shared_memory == 8 * GIB
    assert launch.pod.startup_seconds == 330
    assert launch.pod.open_secrets == ("HF_TOKEN",)
    assert launch.pod.lines["HF_TOKEN"] == 9


def test_a_config_map_of_the_same_file_gives_its_values() -> None:
    config = "kind: ConfigMap\nmetadata: {name: c}\ndata: {MODEL: Qwen/Qwen3-8B}\n---\n"
    pod = "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [$(MODEL)]\n"
    pod += "    envFrom: [{configMapRef: {name: c}}]"
    assert one(config + pod).tokens == ("Qwen/Qwen3-8B",)


def test_a_value_of_a_secret_that_decides_leaves_the_launch_open() -> None:
    found = unanswered(
        """
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
          - name: a
            image: vllm/vllm-openai
            args: [$(MODEL)]
            env: [{name: MODEL, valueFrom: {secretKeyRef: {name: s, key: k}}}]
        """
    )
    assert (found.line, found.name) == (5, "Pod p, container a")
    assert "MODEL" in found.reason


@pytest.mark.parametrize(
    ("selector", "cards"),
    [
        ("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}", ("L4",)),
        ("nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}", ("NVIDIA-H100-80GB-HBM3",)),
        ("nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4-SHARED}", ("NVIDIA-L4",)),
        ("nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3-MIG-1g.10gb}", ("NVIDIA-H100-80GB-HBM3",)),
        ("nodeSelector: {node.kubernetes.io/instance-type: g6e.12xlarge}", ("L40S",)),
        ("nodeSelector: {node.kubernetes.io/instance-type: Standard_NC24ads_A100_v4}", ("A100 PCIe 80GB",)),
        ("nodeSelector: {karpenter.k8s.aws/instance-gpu-name: a100}", ("A100 SXM4 40GB", "A100 SXM4 80GB")),
        (
            "nodeSelector: {karpenter.k8s.aws/instance-gpu-name: a100, node.kubernetes.io/instance-type: p4de.24xl}",
            ("A100 SXM4 80GB",),
        ),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchExpressions: [{key: cloud.google.com/gke-accelerator, operator: In, "
            "values: [nvidia-l4, nvidia-tesla-t4]}]}]}}}",
            ("L4", "Tesla T4"),
        ),
        ("nodeSelector: {disk: ssd}", ()),
        ("nodeSelector: {cloud.google.com/gke-accelerator: {{ .Values.card }}}", ()),
    ],
)
def test_the_card_is_taken_from_the_nodes_that_are_left(selector: str, cards: tuple[str, ...]) -> None:
    assert one(f"kind: Pod\nspec:\n  {selector}\n  {indented(2)}").cards == cards


def test_every_label_names_a_card_of_the_catalogue() -> None:
    labels = _labels()
    names = {name for cards in labels.exact.values() for name in cards}
    names |= {name for _, _, cards in labels.beginnings for name in cards}
    assert len(names) > 15
    for name in names:
        assert find_device(name).id
    assert find_device(card_of_label("nvidia.com/gpu.product", "NVIDIA-GeForce-RTX-4090")[0]).name.endswith("4090")


LWS = """
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - name: leader
          image: vllm/vllm-openai:v0.11.0
          command: [sh, -c, "start.sh leader --size=$(LWS_GROUP_SIZE); vllm serve m -tp 8 -pp $(LWS_GROUP_SIZE)"]
          resources: {limits: {nvidia.com/gpu: 8}}
    workerTemplate:
      spec:
        containers:
        - name: worker
          image: vllm/vllm-openai:v0.11.0
          command: [sh, -c, "start.sh worker"]
          resources: {limits: {nvidia.com/gpu: 8}}
"""


def test_a_leader_worker_set_is_one_server_over_its_pods() -> None:
    launch = one(LWS)
    assert launch.tokens == ("m", "-tp", "8", "-pp", "2")
    assert launch.gpu_hint == 16
    assert launch.pod is not None
    assert launch.pod.nodes == 2


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        (
            "modelFormat: {name: vLLM}, storageUri: 'hf://Qwen/Qwen3-8B:main', args: [--max-model-len=4096]",
            ("Qwen/Qwen3-8B", "--max-model-len=4096", "--revision", "main"),
        ),
        (
            "modelFormat: {name: huggingface}, args: [--model_name=q, --model_id=Qwen/Qwen3-8B, --dtype=half]",
            ("Qwen/Qwen3-8B", "--dtype=half"),
        ),
        ("modelFormat: {name: huggingface}, storageUri: 'pvc://models/q'", ("/mnt/models",)),
    ],
)
def test_an_inference_service_serves_its_model(model: str, tokens: tuple[str, ...]) -> None:
    launch = one(f"kind: InferenceService\nmetadata: {{name: q}}\nspec:\n  predictor:\n    model: {{{model}}}")
    assert launch.tokens == tokens
    assert launch.pod is not None
    assert launch.pod.shared_memory is None


def test_another_format_is_no_launch() -> None:
    text = "kind: InferenceService\n# not vllm\nspec: {predictor: {model: {modelFormat: {name: sklearn}}}}"
    assert read_manifest(text, "m.yaml") == []
    text = text.replace("sklearn", "huggingface").replace("}}}}", "}, args: [--backend=huggingface]}}}")
    assert read_manifest(text, "m.yaml") == []


def test_a_serving_runtime_of_the_same_file_gives_its_command() -> None:
    launch = one(
        """
        kind: ServingRuntime
        metadata: {name: mine}
        spec:
          containers:
          - image: vllm/vllm-openai:v0.28.0
            command: [vllm, serve, /mnt/models]
            args: ["--served-model-name={{.Name}}", --max-num-seqs=32]
        ---
        kind: InferenceService
        metadata: {name: q}
        spec:
          predictor:
            model:
              runtime: mine
              modelFormat: {name: any}
              storageUri: hf://Qwen/Qwen3-8B
              args: [--max-model-len=4096]
              resources: {limits: {nvidia.com/gpu: 1}}
        # vllm
        """
    )
    assert launch.tokens == (
        *("Qwen/Qwen3-8B", "--served-model-name={{ .Name }}", "--max-num-seqs=32", "--max-model-len=4096"),
    )
    assert launch.version_hint == "0.28.0"


def test_an_llm_inference_service_has_decode_and_prefill() -> None:
    text = """
    kind: LLMInferenceService
    metadata: {name: q}
    spec:
      model: {uri: hf://deepseek-ai/DeepSeek-R1}
      parallelism: {data: 16, dataLocal: 8, expert: true, tensor: 1}
      template:
        containers:
        - name: main
          env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 8192 --enforce-eager"}]
          resources: {limits: {nvidia.com/gpu: 8}}
      worker: {containers: [{name: main}]}
      prefill:
        parallelism: {tensor: 4}
        template:
          containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]
    """
    decode, prefill = read_manifest(dedent(text), "m.yaml")
    assert isinstance(decode, Launch)
    assert isinstance(prefill, Launch)
    assert decode.tokens == (
        *("deepseek-ai/DeepSeek-R1", "--tensor-parallel-size", "1", "--data-parallel-size", "16"),
        *("--enable-expert-parallel", "--max-model-len", "8192", "--enforce-eager"),
    )
    assert (decode.gpu_hint, prefill.gpu_hint) == (16, 4)
    assert prefill.tokens[1:] == ("--tensor-parallel-size", "4")


def test_a_ray_service_has_a_launch_for_each_model() -> None:
    launch = one(
        """
        kind: RayService
        metadata: {name: r}
        spec:
          serveConfigV2: |
            applications:
            - args:
                llm_configs:
                - model_loading_config: {model_id: q, model_source: Qwen/Qwen3-32B}
                  accelerator_type: L40S
                  engine_kwargs:
                    tensor_parallel_size: 2
                    enable_chunked_prefill: false
                    max_model_len: 8192
          rayClusterConfig:
            workerGroupSpecs:
            - maxReplicas: 3
              template: {spec: {containers: [{image: rayproject/ray-llm, resources: {limits: {nvidia.com/gpu: 2}}}]}}
        """
    )
    assert launch.tokens == (
        *("Qwen/Qwen3-32B", "--tensor-parallel-size", "2", "--no-enable-chunked-prefill", "--max-model-len", "8192"),
    )
    assert (launch.cards, launch.gpu_hint, launch.version_hint) == (("L40S",), 6, None)
    assert launch.line == 8


def test_python_code_of_a_ray_service_is_not_guessed() -> None:
    text = "kind: RayService\nspec:\n  serveConfigV2: |\n    applications:\n    - import_path: a:b\n      needs: [vllm]"
    assert "Python code (a:b)" in unanswered(text).reason


def test_values_of_the_production_stack_become_its_flags() -> None:
    first, second = read_manifest(
        dedent(
            """
            servingEngineSpec:
              modelSpec:
              - name: a
                repository: vllm/vllm-openai
                tag: v0.28.0
                modelURL: Qwen/Qwen3-8B
                requestGPU: 2
                hf_token: hf_abcdefghijklmnop
                vllmConfig: {tensorParallelSize: 2, maxModelLen: 4096, extraArgs: [--enforce-eager]}
                nodeSelectorTerms:
                - matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L4]}]
              - {name: b, repository: lmcache/vllm-openai, tag: latest, modelURL: m, requestGPU: 1}
              - {name: off, enabled: false, modelURL: m}
            """
        ),
        "values.yaml",
    )
    assert isinstance(first, Launch)
    assert first.tokens == (
        *("Qwen/Qwen3-8B", "--no-enable-prefix-caching", "--max-model-len", "4096"),
        *("--tensor-parallel-size", "2", "--enforce-eager"),
    )
    assert (first.version_hint, first.gpu_hint, first.cards) == ("0.28.0", 2, ("NVIDIA-L4",))
    assert first.pod is not None
    assert (first.pod.shared_memory, first.pod.startup_seconds) == (20 * GIB, 615)
    assert first.pod.open_secrets == ("HF_TOKEN",)
    assert isinstance(second, Launch)
    assert second.version_hint is None


@pytest.mark.parametrize(
    ("container", "says"),
    [
        ("image: vllm/vllm-tpu, command: [vllm, serve, m], resources: {limits: {google.com/tpu: 8}}", "TPUs"),
        ("image: vllm-cpu-release, command: [vllm, serve, m]", "CPUs"),
        ("image: vllm/vllm-openai, command: [/start.sh], resources: {limits: {nvidia.com/gpu: 1}}", "'/start.sh'"),
    ],
)
def test_what_cannot_be_told_says_why(container: str, says: str) -> None:
    assert says in unanswered(f"kind: Pod\nspec:\n  containers:\n  - {{{container}}}").reason


@pytest.mark.parametrize(
    "text",
    [
        "kind: ClusterServingRuntime\nspec: {containers: [{command: [vllm, serve, /mnt/models]}]}",
        "kind: Deployment\nspec: {template: {spec: {containers: [{image: lmcache/router, name: vllm-router}]}}}",
        "kind: RayCluster\nspec: {containers: [{image: my/vllm, resources: {limits: {nvidia.com/gpu: 1}}}]}",
        "vllm: yes\n",
        "- vllm\n- serve\n",
        "# vllm serve m\n",
        "",
    ],
)
def test_what_starts_no_server_holds_nothing(text: str) -> None:
    assert read_manifest(text, "m.yaml") == []


def test_a_secret_in_a_flag_is_one_where_it_stands_in_the_file_itself() -> None:
    launch = one(
        """
        kind: Pod
        spec:
          containers:
          - name: vllm
            image: vllm/vllm-openai:v0.28.0
            args:
            - --model=Qwen/Qwen3-8B
            - --api-key
            - sk-abcdefabcdef
            - --hf-token=$(HF_TOKEN)
            env:
            - name: HF_TOKEN
              value: hf_abcdefghijkl
        """
    )
    assert launch.pod is not None
    assert launch.pod.open_secrets == ("HF_TOKEN", "--api-key")
    assert launch.pod.lines["--api-key"] == 9


@pytest.mark.parametrize(
    "args",
    [
        "[--model, Qwen/Qwen3-8B, --hf-token, --max-model-len, '8192']",
        "[--model, Qwen/Qwen3-8B, --hf-token]",
        "[--model, Qwen/Qwen3-8B, --api-key, $(KEY)]",
        "[--model, Qwen/Qwen3-8B, --api-key, <your key>]",
    ],
)
def test_a_flag_without_a_value_of_its_own_is_no_secret(args: str) -> None:
    launch = one(
        f"""
        kind: Pod
        spec:
          containers:
          - name: vllm
            env: [{{name: KEY, value: sk-abcdefabcdef}}]
            image: vllm/vllm-openai:v0.28.0
            args: {args}
        """
    )
    assert launch.pod is not None
    assert not [name for name in launch.pod.open_secrets if name.startswith("-")]
