"""The comparison in a sentence or two, for somebody who reads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.compare.comparison import NOISE, FigureRow, Moved, SettingRow
from kvroom.compare.movement import contribution
from kvroom.compare.names import show_figure, show_value, spoken, spoken_entry
from kvroom.compare.roots import followers, written
from kvroom.compare.settings import arguments_shown
from kvroom.compare.side import Setting, Side
from kvroom.units import show_bytes
from kvroom.vllm.arguments import decides

_RUN = frozenset({"activation", "other", "rest", "available", "tokens", "num_blocks", "max_concurrency"})
"""Entries that another process or fragmentation moves."""
_MOST = 6
"""Settings that a sentence names."""


@dataclass(frozen=True, slots=True)
class Story:
    """What there is to tell."""

    good: Side
    bad: Side
    settings: tuple[SettingRow, ...]
    ledger: tuple[FigureRow, ...]
    pool: tuple[FigureRow, ...]
    made: tuple[SettingRow, ...]
    """The differences that follow from no other."""
    moved: Moved | None
    free: FigureRow
    explained: bool
    """Whether the rules name the setting that moved the entry."""


def tell(story: Story) -> str:
    """The story in plain sentences."""
    ending = _ending(story)
    if story.moved is None:
        said = _nothing_moved(story)
    elif story.moved.entry == "free_bytes":
        said = _free(story)
    elif story.explained and story.moved.setting is not None:
        said = _explained(story, story.moved)
    elif not story.made:
        said = _nobody_changed(story, story.moved)
    else:
        said = _unexplained(story, story.moved)
    return f"{said}{ending}"


def _ending(story: Story) -> str:
    if story.bad.failed and not story.good.failed:
        return f" The second start fails at stage {story.bad.stage or 'unknown'}."
    if story.good.failed and not story.bad.failed:
        return f" The first start fails at stage {story.good.stage or 'unknown'}, the second does not."
    return ""


def _nothing_moved(story: Story) -> str:
    seen = any(row.difference is not None for row in (*story.ledger, *story.pool))
    figures = (
        f"no figure moved by more than run-to-run noise ({show_bytes(NOISE)})"
        if seen
        else "the two show no figure in common"
    )
    if not story.made:
        return f"{_none(story)}, and {figures}."
    return f"{_listed(story)}; {figures}."


def _complete(story: Story) -> bool:
    """Whether both sides show all their arguments, so that what is not shown does not differ."""
    shown = all(side.reading is None or arguments_shown(side.reading) for side in (story.good, story.bad))
    return shown and not _alone(story)


def _alone(story: Story) -> list[SettingRow]:
    """Arguments that one side gives and whose value on the other side is unknown."""
    found = []
    for row in story.settings:
        known = row.good or row.bad
        if (row.good is None or row.bad is None) and known is not None and not known.default and decides(row.name):
            found.append(row)
    return found


def _also(story: Story) -> str:
    """What to look at beside the settings that are known to differ."""
    alone = [f"{spoken(row.name)} ({_value(row.name, row.good or row.bad)})" for row in _alone(story)]
    if not alone:
        return ""
    return f" {_join(alone[:_MOST])} {'is' if len(alone) == 1 else 'are'} shown by one side only."


def _none(story: Story) -> str:
    return "No setting differs" if _complete(story) else "Of what both show no setting differs"


def _free(story: Story) -> str:
    lost = story.free.difference or 0.0
    differs = f"{_listed(story)}. " if story.made else f"{_none(story)}. "
    what = "less" if lost < 0 else "more"
    return f"{differs}{show_bytes(abs(lost))} {what} was free when the second start looked: {_another(story)}."


def _another(story: Story) -> str:
    reading = story.bad.reading
    told = reading.facts.first("oom_other") if reading else None
    if told is not None:
        return f"another process holds memory on the card (line {told.line} names one)"
    return "another process holds memory on the card"


def _explained(story: Story, moved: Moved) -> str:
    assert moved.setting is not None
    values = _values(story, moved.setting)
    only = [row.name for row in story.made] in ([moved.setting], []) or (
        len(story.made) == 1 and moved.setting in {row.name for row in _after(story, story.made[0])}
    )
    if only and story.made:
        root = story.made[0]
        start = _only(story, root)
        if root.name != moved.setting:
            start += f"; with it {spoken(moved.setting)} changed{values}"
    else:
        count = len(story.made)
        several = f"{count} settings differ; " if count > 1 else ""
        start = f"{several}{spoken(moved.setting)}{values} accounts for the change"
    return f"{start}, and it {_effect(moved)}.{_defaults(story, moved.setting)}"


def _effect(moved: Moved) -> str:
    """What the change does, e.g. ``costs 0.32 GiB``, and through which entry."""
    before, after = moved.good, moved.bad
    through = f"{spoken_entry(moved.entry)} is {_shown(moved.entry, after)} instead of {_shown(moved.entry, before)}"
    if moved.entry in {"requested", "weights", "activation", "other", "rest", "cuda_graphs", "available"}:
        if moved.effect is None:
            return f"moves {through}".replace(" is ", " to ", 1)
        word = "costs" if moved.effect < 0 else "gives"
        size = show_bytes(abs(moved.effect))
        return f"{word} {size}" if moved.entry == "available" else f"{word} {size}: {through}"
    return f"moves {spoken_entry(moved.entry)}: {_shown(moved.entry, after)} instead of {_shown(moved.entry, before)}"


def _shown(entry: str, value: float | None) -> str:
    return "unknown" if value is None else show_figure(entry, value)


def _defaults(story: Story, setting: str) -> str:
    """What else came with the change: other defaults, and the parts that partly cancel."""
    said = ""
    after = [row for row in _after(story, setting) if row.name not in {"engine", "gpus", "total_bytes"}]
    if after:
        said += f" With it came {_join([_change(row) for row in after[:_MOST]])}."
    parts = [row for row in story.ledger if row.moved and row.name != "available"]
    if len(parts) > 1:
        shown = [f"{row.name} {show_figure(row.name, contribution(row), signed=True)}" for row in parts]
        said += f" By entry: {', '.join(shown)} for the KV cache."
    return said


def _after(story: Story, root: SettingRow | str) -> list[SettingRow]:
    name = root if isinstance(root, str) else root.name
    given = written(story.good) | written(story.bad)
    return followers(story.settings, name, given)


def _nobody_changed(story: Story, moved: Moved) -> str:
    start = _none(story)
    moves = (
        f"{spoken_entry(moved.entry)} is {_shown(moved.entry, moved.bad)} instead of {_shown(moved.entry, moved.good)}"
    )
    if story.free.moved and (story.free.difference or 0) < 0:
        return (
            f"{start}, yet {moves}. {show_bytes(abs(story.free.difference or 0))} less was free at start: "
            f"{_another(story)}."
        )
    if not _complete(story):
        return f"{start}, yet {moves}. Not all arguments are shown: one of them may be the cause.{_also(story)}"
    if moved.entry not in _RUN:
        return f"{start}, yet {moves}: what is not compared here, such as the checkpoint or a package, has changed."
    reason = "another process took memory while vLLM measured, or the allocator's memory was fragmented"
    return f"{start}, yet {moves}: {reason}."


def _unexplained(story: Story, moved: Moved) -> str:
    moves = (
        f"{spoken_entry(moved.entry)} is {_shown(moved.entry, moved.bad)} instead of {_shown(moved.entry, moved.good)}"
    )
    if moved.effect is not None and moved.entry != "available":
        moves += f", {show_bytes(abs(moved.effect))} {'less' if moved.effect < 0 else 'more'} for the KV cache"
    predicted = story.good.prediction is not None and story.bad.prediction is not None
    if len(story.made) == 1:
        start = f"{_only(story, story.made[0])}, and {moves}."
        if predicted and _complete(story):
            return f"{start} The rules do not give that setting such a change: look for another process as well."
        return f"{start}{_also(story)}"
    cause = "The rules name none of them as the cause" if predicted else "More than one of them may be the cause"
    return f"{_listed(story)}, and {moves}. {cause}.{_also(story)}"


def _listed(story: Story) -> str:
    rows = story.made
    if len(rows) == 1:
        return _only(story, rows[0])
    named = [_change(row) for row in rows[:_MOST]]
    if len(rows) > _MOST:
        named.append(f"{len(rows) - _MOST} more")
    text = f"{_join(named)} differ"
    return text if text.startswith("vLLM") else text[0].upper() + text[1:]


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _change(row: SettingRow) -> str:
    return f"{spoken(row.name)} ({_value(row.name, row.good)} -> {_value(row.name, row.bad)})"


def _only(story: Story, row: SettingRow) -> str:
    start = "Only" if _complete(story) else "Of what both show only"
    return f"{start} {spoken(row.name)} differs ({_value(row.name, row.good)} -> {_value(row.name, row.bad)})"


def _value(name: str, setting: Setting | None) -> str:
    return "unknown" if setting is None else show_value(name, setting.value)


def _values(story: Story, name: str) -> str:
    row = next((row for row in story.settings if row.name == name), None)
    return f" ({_value(name, row.good)} -> {_value(name, row.bad)})" if row else ""
