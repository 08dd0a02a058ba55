"""Ways out of a start that fails: the remedy that was found for it first, then what frees memory, cheapest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvroom.remedies.limits import round_length
from kvroom.trials.changes import Changes
from kvroom.trials.goal import Goal
from kvroom.trials.platform import Platform
from kvroom.trials.trial import State, Trial
from kvroom.vllm.args import EngineArgs

SEQS, BATCHED, LENGTH = "max_num_seqs", "max_num_batched_tokens", "max_model_len"
_NOT_OURS = frozenset(
    "model tensor_parallel_size pipeline_parallel_size data_parallel_size quantization dtype port host revision"
    " tokenizer served_model_name".split()
)
"""What a remedy may name and a run does not change: other hardware, another model, another answer."""
_HOST_HAS_NONE = frozenset({"kv_cache_dtype", "cpu_offload_gb", "enforce_eager"})
"""What frees no memory where the server computes on the CPU."""
_LEAST_BATCH = 512


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run holds to."""

    goal: Goal
    platform: Platform
    args: EngineArgs
    """The command as it was given."""
    pinned: frozenset[str] = field(default_factory=frozenset)
    """Arguments that stay as the command has them."""

    def may(self, changes: Changes) -> bool:
        """Whether ``changes`` are the run's to make."""
        names = set(changes)
        if names & (self.pinned | _NOT_OURS):
            return False
        return self.platform.kind == "gpu" or not names & _HOST_HAS_NONE

    def value(self, changes: Changes, name: str) -> int | None:
        """The whole number that argument ``name`` has after ``changes``; None where it is left to vLLM."""
        found = changes.get(name, getattr(self.args, name, None))
        return found if isinstance(found, int) else None


def ways_out(trial: Trial, terms: Terms, *, shorten: bool) -> Iterator[tuple[Changes, str]]:
    """Steps to take after ``trial``, which does not start, each with its reason.

    With ``shorten`` the last ways give up length, which a goal may need.
    """
    short: list[tuple[Changes, str]] = []
    found = f"the diagnosis of trial {trial.number} ({trial.finding})" if trial.finding else "the ledger"
    for remedy in (*trial.remedies, *trial.forecast.remedies):
        if not terms.may(remedy):
            continue
        if _shorter(remedy, trial, terms):
            short.append((remedy, f"{found} advises it"))
        else:
            yield remedy, f"{found} advises it"
    refused = trial.state is State.SKIPPED and trial.forecast.stage in {"config", "model_resolve"}
    unknown = trial.state is State.FAILED and not trial.finding
    if not refused and not unknown:  # what nobody recognises is no want of memory
        yield from _freeing(trial, terms)
    if shorten:
        yield from short
        longest = None if unknown else trial.forecast.longest
        if longest and LENGTH not in terms.pinned and longest < (terms.value(trial.changes, LENGTH) or longest + 1):
            yield {LENGTH: round_length(longest)}, f"the longest that fits by the ledger is {longest:,} tokens"


def _freeing(trial: Trial, terms: Terms) -> Iterator[tuple[Changes, str]]:
    now, platform = trial.changes, terms.platform
    seqs, batched = terms.value(now, SEQS), terms.value(now, BATCHED)
    least = terms.goal.requests or 1
    if platform.profiles and seqs and seqs // 2 >= least and terms.may({SEQS: 1}):
        yield {SEQS: seqs // 2}, "fewer sequences take less in the profile"
    if platform.profiles and batched and batched // 2 >= _LEAST_BATCH and terms.may({BATCHED: 1}):
        yield {BATCHED: batched // 2}, "a smaller batch takes less in the profile"
    for step in platform.memory_steps(terms.args, now, trial.forecast):
        if terms.may(step):
            yield step, f"more memory for the cache{f', for {trial.finding}' if trial.finding else ''}"
    for step in platform.trades(terms.args, now):
        if terms.may(step):
            yield step, "what costs something else comes last"


def _shorter(remedy: Changes, trial: Trial, terms: Terms) -> bool:
    """Whether ``remedy`` gives up length that the goal needs, or that the trial was about."""
    length = remedy.get(LENGTH)
    now = terms.value(trial.changes, LENGTH)
    return isinstance(length, int) and (now is None or length < now or length == -1)
