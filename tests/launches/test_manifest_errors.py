"""Manifests that are broken, templated or hostile: one clear item each, and the rest is still read."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.launches.launch import Launch, Unanswered, Unread
from kvroom.launches.manifests import read_manifest

GOOD = "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.28.0\n    args: [Qwen/Qwen3-8B]\n"


def test_a_broken_document_is_reported_with_its_line_and_the_others_are_read() -> None:
    broken = "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n   args: [m]\n"
    first, second, third = read_manifest(f"{GOOD}---\n{broken}---\n{GOOD}", "m.yaml")
    assert isinstance(first, Launch)
    assert isinstance(third, Launch)
    assert isinstance(second, Unread)
    assert second.line == 11
    assert "begins on line 6" in second.problem or "begins on line 7" in second.problem


def test_a_broken_document_that_is_about_something_else_is_no_concern() -> None:
    assert len(read_manifest(f"{GOOD}---\na: [1\n", "m.yaml")) == 1


TEMPLATE = """
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.28.0
        args:
        - Qwen/Qwen3-8B
        - --served-model-name={{ .Values.name }}
        - --port={{ .Values.port }}
"""


def test_values_that_decide_nothing_may_be_missing() -> None:
    (found,) = read_manifest(TEMPLATE, "m.yaml")
    assert isinstance(found, Launch)
    assert found.tokens[1] == "--served-model-name={{ .Values.name }}"


@pytest.mark.parametrize(
    ("more", "wants"),
    [
        ("        - --max-model-len={{ .Values.length }}\n", ".Values.length (line 15)"),
        (
            "        {{- if .Values.eager }}\n        - --enforce-eager\n        {{- end }}\n",
            "if .Values.eager (line 15)",
        ),
        ("        {{- toYaml .Values.more | nindent 8 }}\n", "toYaml .Values.more | nindent 8 (line 15)"),
        (
            "        {{- range\n  .Values.flags }}\n        - {{ . }}\n        {{- end }}\n",
            "range .Values.flags (line 15)",
        ),
    ],
)
def test_a_template_says_which_values_are_missing_and_where(more: str, wants: str) -> None:
    (found,) = read_manifest(TEMPLATE + more, "m.yaml")
    assert isinstance(found, Unanswered)
    assert wants in found.reason
    assert "helm template" in found.cure


def test_a_template_that_is_no_yaml_without_its_values_says_so() -> None:
    (found,) = read_manifest(TEMPLATE + "        {{ .Values.a }}: {{ .Values.b }}\n      - {\n", "m.yaml")
    assert isinstance(found, Unread)
    assert ".Values.a" in found.problem


def test_laughing_anchors_are_read_at_the_cost_of_their_size() -> None:
    rows = ["a0: &a0 [lol, lol]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    maps = ["m0: &m0 {k: v}", *(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], x{n}: y}}" for n in range(1, 60))]
    started = time.process_time()
    found = read_manifest("\n".join([*rows, *maps, GOOD.rstrip(), "    x: *a59"]), "m.yaml")
    assert time.process_time() - started < 2
    assert len(found) == 1


def test_merges_without_end_are_refused() -> None:
    base = "b: &b {" + ", ".join(f"k{n}: v" for n in range(2000)) + "}\n"
    merges = "".join(f"c{n}: &c{n}\n  <<: *b\n" for n in range(200))
    containers = "spec:\n  containers:\n" + "".join(f"  - {{<<: *c{n}, image: vllm}}\n" for n in range(200))
    (found,) = read_manifest(base + merges + "kind: Pod\n" + containers, "m.yaml")
    assert isinstance(found, Unread)
    assert "expand without end" in found.problem


def test_what_refers_to_itself_ends() -> None:
    text = "kind: Pod\nspec: &s\n  self: *s\n  containers:\n  - &c {image: vllm/vllm-openai, args: [m], me: *c}\n"
    assert len(read_manifest(text, "m.yaml")) == 1
    assert read_manifest("a: &a {<<: *a, vllm: x}", "m.yaml") == []


def test_variables_that_double_each_other_are_refused() -> None:
    env = [
        "- {name: V0, value: aaaaaaaaaa}",
        *(f"- {{name: V{n}, value: $(V{n - 1})$(V{n - 1})}}" for n in range(1, 64)),
    ]
    text = GOOD.replace("[Qwen/Qwen3-8B]", "[$(V63)]") + "    env:\n    " + "\n    ".join(env)
    (found,) = read_manifest(text, "m.yaml")
    assert isinstance(found, Unanswered)
    assert "more than 100,000 characters" in found.reason


@pytest.mark.parametrize(
    "text", ["vllm: " + "[" * 5000, "\n".join(" " * n + "vllm:" for n in range(3000)), "vllm: \x07"]
)
def test_what_is_nested_too_deeply_or_no_text_is_one_item(text: str) -> None:
    (found,) = read_manifest(text, "m.yaml")
    assert isinstance(found, Unread)


def test_many_templates_are_read_in_time() -> None:
    text = TEMPLATE + "".join(f"        - --x{n}={{{{ .Values.x{n} }}}}\n" for n in range(20_000))
    started = time.process_time()
    assert len(read_manifest(text, "m.yaml")) == 1
    assert time.process_time() - started < 20


@given(st.text(alphabet=st.sampled_from("vllm serve:{}[]-&*!|>'\"#$()%@`\n\t ,<?=~0a"), max_size=120))
def test_any_text_gives_items_and_never_an_error(text: str) -> None:
    for found in read_manifest(
        f"# vllm\nkind: Pod\nspec:\n  containers:\n  - image: vllm-openai\n    args: {text}", "m"
    ):
        assert isinstance(found, Launch | Unanswered | Unread)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "kind",
                        "spec",
                        "template",
                        "containers",
                        "args",
                        "command",
                        "env",
                        "model",
                        "image",
                        "resources",
                        "servingEngineSpec",
                        "modelSpec",
                        "services",
                        "predictor",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_shape_gives_items_and_never_an_error(data: object) -> None:
    import yaml

    for kind in ("Pod", "LeaderWorkerSet", "InferenceService", "LLMInferenceService", "RayService"):
        text = dedent(f"kind: {kind}\n") + yaml.safe_dump({"spec": data, "x": "vllm"})
        assert isinstance(read_manifest(text, "m.yaml"), list)
    assert isinstance(read_manifest("# vllm\n" + yaml.safe_dump(data), "m.yaml"), list)
