"""The findings about a launch's settings, one module each, and the way to every rule.

Codes: KVR1xx a launch's settings, KVR2xx what a start-up log says, KVR3xx serving. To add one, write a
module with ``RULE`` and ``find`` beside its kind, put it into the tuple here, and regenerate the page
(``python -m kvroom.findings.page > docs/rules.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from kvroom.errors import UsageError
from kvroom.findings.deployments import (
    fewer_gpus_than_ranks,
    floating_image,
    secret_in_manifest,
    shared_memory,
    startup_probe,
)
from kvroom.findings.settings import (
    assumed_architecture,
    batch_below_context,
    batch_below_sequences,
    batch_too_large,
    beyond_the_model,
    bfloat16_unsupported,
    block_size_changed,
    blocks_override,
    cache_bytes_too_large,
    cpu_offload,
    decimal_k,
    enforce_eager,
    environment,
    flag_of_another_release,
    fp8_cache_backend,
    fp8_cache_unsupported,
    heads_not_divisible,
    hybrid_manager,
    idle_gpus,
    kv_cache_memory_bytes,
    kv_offloading,
    kv_replicated,
    kv_scales,
    no_experts,
    one_at_a_time,
    outside_the_budget,
    quantization_mismatch,
    quantization_unsupported,
    sequences_beyond_pool,
    state_blocks,
    state_checkpoints,
    swap_space,
    unknown_flag,
    utilization_above_free,
    vision_profile,
    yarn,
)

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.findings.deployments.place import Placed
    from kvroom.findings.finding import Finding, Rule
    from kvroom.ledger.predict import Prediction


class Catalogued(Protocol):
    """A module of the catalogue, of any kind."""

    RULE: Rule


class LaunchFinding(Catalogued, Protocol):
    """A module that looks at a predicted launch."""

    def find(self, prediction: Prediction) -> Iterator[Finding]:
        """The occurrences of the rule, none as a rule; pure and cheap."""


class DeploymentFinding(Catalogued, Protocol):
    """A module that looks at a predicted launch and the pod around it."""

    def find(self, placed: Placed) -> Iterator[Finding]:
        """The occurrences of the rule, none as a rule; pure and cheap."""


class LogFinding(Catalogued, Protocol):
    """A module that looks at what a log says."""

    def find(self, case: Case) -> Iterator[Finding]:
        """The occurrences of the rule, none as a rule; pure and cheap."""


LAUNCH: tuple[LaunchFinding, ...] = (
    kv_cache_memory_bytes,
    utilization_above_free,
    outside_the_budget,
    enforce_eager,
    blocks_override,
    cpu_offload,
    kv_offloading,
    cache_bytes_too_large,
    swap_space,
    environment,
    flag_of_another_release,
    unknown_flag,
    kv_scales,
    yarn,
    decimal_k,
    batch_below_context,
    batch_below_sequences,
    batch_too_large,
    sequences_beyond_pool,
    one_at_a_time,
    beyond_the_model,
    heads_not_divisible,
    kv_replicated,
    no_experts,
    idle_gpus,
    state_blocks,
    hybrid_manager,
    state_checkpoints,
    block_size_changed,
    vision_profile,
    quantization_mismatch,
    quantization_unsupported,
    fp8_cache_unsupported,
    fp8_cache_backend,
    bfloat16_unsupported,
    assumed_architecture,
)
"""Findings about a launch, in the order of their codes."""

DEPLOYMENT: tuple[DeploymentFinding, ...] = (
    fewer_gpus_than_ranks,
    shared_memory,
    startup_probe,
    secret_in_manifest,
    floating_image,
)
"""Findings about the pod around a launch, in the order of their codes."""


def all_rules() -> tuple[Rule, ...]:
    """Every rule, about settings and logs, in the order of the codes."""
    from kvroom.findings.log_catalogue import LOG

    return tuple(sorted((module.RULE for module in (*LAUNCH, *DEPLOYMENT, *LOG)), key=lambda rule: rule.code))


def rule(code_or_name: str) -> Rule:
    """The rule with this code (``KVR101``, in any case) or name.

    Raises UsageError with the nearest codes where there is none.
    """
    wanted = code_or_name.strip().lower()
    rules = all_rules()
    for candidate in rules:
        if wanted in (candidate.code.lower(), candidate.name):
            return candidate
    raise UsageError(f"There is no finding '{code_or_name[:60]}'.", f"Nearest: {', '.join(_nearest(wanted, rules))}.")


def _nearest(wanted: str, rules: tuple[Rule, ...]) -> list[str]:
    """Code and name of up to three rules that look or read like ``wanted``."""
    by_text = {text: found for found in rules for text in (found.code.lower(), found.name)}
    close = get_close_matches(wanted[:60], list(by_text), n=3, cutoff=0.5)
    words = [text for text in by_text if wanted and wanted in text]
    chosen = dict.fromkeys(by_text[text] for text in (*words, *close))
    return [f"{found.code} {found.name}" for found in (*chosen, *rules)[:3]]
