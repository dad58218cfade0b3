"""The summary of a run as plain HTML: it works without script, on paper, and in a diff.

This module escapes every text of the run, and counts the rows that it leaves out.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Final, assert_never
from urllib.parse import quote

import attrs
import msgspec

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Status, TaskId, Tree, one_line, printable
from orchestrator.delegation.tree.critical_path import SegmentKind
from orchestrator.delegation.tree.glyphs import STATUS_GLYPHS
from orchestrator.delegation.tree.tally import FAILURES
from orchestrator.ports.journals import RunHistory
from orchestrator.products.history.coordination import Coordination

ANSWER_CHARACTERS: Final = 4_000
ERROR_CHARACTERS: Final = 300
ERRORS_SHOWN: Final = 20
TASKS_SHOWN: Final = 3
"""The number of tasks to show for each error."""
COSTS_SHOWN: Final = 20
SUBTREES_SHOWN: Final = 15
STEPS_SHOWN: Final = 30
PATH_CHARACTERS: Final = 300


def _word_and_group(status: Status | Ending) -> tuple[str, str]:
    match status:
        case Ending.SUCCEEDED:
            return "done", "done"
        case Ending.FAILED | Ending.TIMED_OUT | Ending.OVER_BUDGET | Ending.LOST:
            return status.replace("_", " "), "failed"
        case Ending.CANCELLED | Ending.REFUSED:
            return status.value, "cancelled"
        case Status.RUNNING | Status.QUIET:
            return status.value, "running"
        case Status.QUEUED | Status.WAITING | Status.INTERRUPTED:
            return status.value, status.value
        case _:
            assert_never(status)


STATUS_DISPLAY: Final[Mapping[str, tuple[str, str, str]]] = {
    status: (STATUS_GLYPHS[status], *_word_and_group(status)) for status in (*Status, *Ending)
}
"""The glyph, the word and the colour group of each status, as in `viewer/status.js`."""
_PART_WORDS: Final[Mapping[SegmentKind, str]] = {
    SegmentKind.WORKS: "at work",
    SegmentKind.PROVIDER: "waiting for the provider",
    SegmentKind.QUEUED: "queued",
    SegmentKind.IDLE: "idle",
}
_NUMBERS: Final = re.compile(r"\d+")
_MARKS: Final = re.compile(r"[\u200e\u200f]")


@attrs.frozen
class Tile:
    name: str
    value: str
    more: str = ""


def summary_of(
    history: RunHistory,
    title: str,
    *,
    version: str,
    transcripts: str,
    team: Coordination | None = None,
) -> str:
    """Return the summary of a run."""
    tree = history.tree
    glyph, word, group = STATUS_DISPLAY[tree[tree.root].status]
    began = dt.datetime.fromtimestamp(history.began, dt.UTC)
    return "\n".join(
        [
            f"<h1>{_text(title)}</h1>",
            f'<p class="lead"><span class="state {group}">{glyph} {word}</span>'
            f" · run <code>{_text(history.run)}</code>"
            f" · began {began:%Y-%m-%d %H:%M:%S} UTC</p>",
            *_answer(history),
            _tiles(history),
            *_failures(history),
            *_costs(history),
            *_costliest(history),
            *_critical(history),
            *_coordination(tree, team),
            "<h2>About this file</h2>",
            f'<p class="small">{_text(transcripts)} Goals, errors and questions are cut in the'
            " tree where they are long, and end with “…” then.</p>",
            f'<p class="small">Written by delegation-orchestrator {_text(version)}'
            f" from {_source(history)}</p>",
        ]
    )


def _source(history: RunHistory) -> str:
    if not history.facts:
        return "the tree in memory; the journal has more."
    opened_by = _text(", ".join(history.versions)) or "an unknown version"
    return (
        f"{history.facts:,} facts of the journal, which {opened_by} had opened. SHA-256 of these"
        f" facts: <code>{history.digest}</code>"
    )


def _answer(history: RunHistory) -> Iterator[str]:
    if not history.answer:
        return
    answer = history.answer
    with suppress(msgspec.DecodeError):  # mostly it is text
        answer = msgspec.json.format(answer, indent=2)
    yield "<h2>Answer</h2>"
    yield f'<pre class="answer" dir="auto">{_text(_short(answer, ANSWER_CHARACTERS))}</pre>'
    left = len(answer) - ANSWER_CHARACTERS
    yield _left_out(left, "character", "the transcript has them")


def _tiles(history: RunHistory) -> str:
    tree = history.tree
    total, work = tree.total, tree.parallelism(now=history.last_at)
    counts = [
        f"{STATUS_DISPLAY[status][0]} {number:,} {STATUS_DISPLAY[status][1]}"
        for status, number in sorted(tree.counts().items(), key=lambda count: -count[1])
    ]
    path = history.critical_path
    tiles = [
        Tile("agents", f"{len(tree):,}", " · ".join(counts)),
        Tile("cost", dollars(total), _cost_note(total)),
        Tile(
            "tokens",
            total.tokens_text,
            f"{total.input_tokens:,} read, {total.output_tokens:,} written,"
            f" {total.calls:,} model calls",
        ),
        Tile("time", seconds(history.last_at - history.began), _span_note(history)),
        Tile(
            "most at work at once",
            f"{work.peak:,}",
            f"{work.achieved:.1f} on average; {seconds(work.work)} one after the other",
        ),
        Tile(
            "critical path",
            seconds(path.seconds),
            f"{_counted(len(path.tasks), 'agent')} on it, at work for {seconds(path.work)}",
        ),
    ]
    if waited := tree.provider_wait():
        on_path = seconds(path.seconds_of(SegmentKind.PROVIDER))
        tiles.append(
            Tile(
                "waiting for providers",
                seconds(waited),
                f"before model calls of {_counted(len(tree.provider_waits), 'agent')};"
                f" {on_path} on the critical path",
            )
        )
    return '<dl class="tiles">' + "".join(map(_tile, tiles)) + "</dl>"


def _tile(tile: Tile) -> str:
    more = f"<small>{_text(tile.more)}</small>" if tile.more else ""
    return f"<div><dt>{tile.name}</dt><dd>{_text(tile.value)}{more}</dd></div>"


def _cost_note(total: Usage) -> str:
    notes: list[str] = []
    if total.unpriced:
        calls = _counted(total.unpriced, "model call")
        notes.append(f"{calls} without a known price")
    if total.estimated:
        calls = _counted(total.estimated, "model call")
        notes.append(f"{calls} broken off and estimated")
    if total.saved_micro_usd:
        notes.append(f"caches have {_saved(total.saved_micro_usd)}")
    return "; ".join(notes)


def _span_note(history: RunHistory) -> str:
    until = dt.datetime.fromtimestamp(history.last_at, dt.UTC)
    return f"until {until:%Y-%m-%d %H:%M:%S} UTC"


def _failures(history: RunHistory) -> Iterator[str]:
    groups = failure_groups(history.tree)
    failed = sum(len(group.tasks) for group in groups)
    yield f"<h2>Failures ({failed:,})</h2>"
    if not failed:
        yield "<p>Nothing has failed.</p>"
        return
    yield _table(
        ["error", "how often", "where"],
        (
            [
                _text(group.error),
                _status(history.tree[group.tasks[0]].status, len(group.tasks)),
                "".join(_name(history, task) for task in group.tasks[:TASKS_SHOWN])
                + _left_out(len(group.tasks) - TASKS_SHOWN, "task", "see the tree"),
            ]
            for group in groups[:ERRORS_SHOWN]
        ),
        classes=["error", "", ""],
    )
    yield _left_out(len(groups) - ERRORS_SHOWN, "error", "the tree has them all")


def _status(status: str, number: int) -> str:
    glyph, word, group = STATUS_DISPLAY[status]
    return f'<span class="{group}">{glyph} {number:,} {word}</span>'


def _costs(history: RunHistory) -> Iterator[str]:
    costs = model_costs(history)
    if not costs:
        return
    whole = history.tree.total
    by_cost = bool(whole.micro_usd)
    yield "<h2>Cost by agent and model</h2>"
    yield _table(
        ["agent", "model", "tasks", "calls", "tokens", "cached", "cost", "share"],
        (
            [
                f"<b>{_text(it.agent)}</b>",
                _text(it.model),
                f"{it.tasks:,}",
                f"{it.usage.calls:,}",
                it.usage.tokens_text,
                _text(cached_share(it.usage)),
                _text(dollars(it.usage)),
                _share(it.usage, whole, by_cost=by_cost),
            ]
            for it in costs[:COSTS_SHOWN]
        ),
        classes=["", "", "n", "n", "n", "n", "n", "n"],
    )
    yield _left_out(len(costs) - COSTS_SHOWN, "pair", "not shown here")


def _costliest(history: RunHistory) -> Iterator[str]:
    tree = history.tree
    whole = tree.total
    below = [task for task in tree if task != tree.root]
    below.sort(key=lambda it: (tree[it].total.micro_usd, tree[it].total.tokens), reverse=True)
    yield "<h2>Costliest subtrees</h2>"
    if not below:
        yield "<p>Nothing was delegated.</p>"
        return
    by_cost = bool(whole.micro_usd)
    yield _table(
        ["what", "agents", "tokens", "cost", "share"],
        (
            [
                _name(history, task),
                f"{tree.tally(task).tasks:,}",
                tree[task].total.tokens_text,
                _text(dollars(tree[task].total)),
                _share(tree[task].total, whole, by_cost=by_cost),
            ]
            for task in below[:SUBTREES_SHOWN]
        ),
        classes=["", "n", "n", "n", "n"],
    )
    of = "cost" if by_cost else "tokens, since no price is known"
    yield f'<p class="small">A subtree is an agent with all below it; the share is of the {of}.</p>'


def _share(usage: Usage, whole: Usage, *, by_cost: bool) -> str:
    part, all_ = (usage.micro_usd, whole.micro_usd) if by_cost else (usage.tokens, whole.tokens)
    return f"{100 * part / all_:.1f} %" if all_ else ""


def _critical(history: RunHistory) -> Iterator[str]:
    path = history.critical_path
    yield "<h2>Critical path</h2>"
    if not path.segments:
        yield "<p>Nothing has begun.</p>"
        return
    yield (
        '<p class="small">What took as long as all of it took: only what is at work here is'
        " worth making faster.</p>"
    )
    yield _table(
        ["who", "what", "from", "for"],
        (
            [
                _name(history, step.task),
                _PART_WORDS[step.part],
                seconds(step.begin - history.began),
                seconds(step.seconds),
            ]
            for step in path.segments[:STEPS_SHOWN]
        ),
        classes=["", "", "n", "n"],
    )
    yield _left_out(len(path.segments) - STEPS_SHOWN, "step", "not shown here")


def _coordination(tree: Tree, team: Coordination | None) -> Iterator[str]:
    if team is None or len(tree) < 2:
        return
    yield "<h2>Coordination</h2>"
    yield '<p class="small">How the agents worked together, counted without a model.</p>'
    yield f"<ul>{''.join(f'<li>{_text(it)}</li>' for it in team.lines())}</ul>"


def _name(history: RunHistory, task: TaskId) -> str:
    node = history.tree[task]
    about = one_line(node.label or node.goal)
    name = f"<b>{_text(node.agent)}</b> {_text(about)}"
    path = _text(_short(node.path, PATH_CHARACTERS))
    return (
        f'<a href="#task={quote(task)}" data-task="{escape(task)}">{name}</a>'
        f'<span class="path">{path}</span>'
    )


def cached_share(usage: Usage) -> str:
    """Return the share of the input that came from a cache, and the money that it saved."""
    if not (usage.cached_tokens or usage.cache_written_tokens):
        return ""
    share = f"{100 * usage.cached_tokens / max(1, usage.input_tokens):.0f} %"
    return f"{share}, {_saved(usage.saved_micro_usd)}" if usage.saved_micro_usd else share


def _saved(micro_usd: int) -> str:
    amount = abs(micro_usd) / 1_000_000
    return f"{'saved' if micro_usd > 0 else 'lost'} ${amount:,.{2 if amount >= 1 else 4}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, classes: Sequence[str]) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="{kind}">{text}</{tag}>'
            for text, kind in zip(texts, classes, strict=True)
        )

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>\n{body}</tbody></table>"


def _left_out(number: int, noun: str, where: str) -> str:
    if number <= 0:
        return ""
    return f'<p class="small">{_counted(number, f"more {noun}")}: {where}.</p>'


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str) -> str:
    """Escape a text, and remove characters that change the direction of the text around it."""
    return escape(_MARKS.sub("\N{REPLACEMENT CHARACTER}", printable(text)))


def dollars(usage: Usage) -> str:
    """Format a cost, and mark a lower bound."""
    if usage.unpriced and not usage.micro_usd:
        return "price unknown"
    amount = usage.micro_usd / 1_000_000
    digits = 2 if amount >= 1 else 4
    return f"{'≥ ' if usage.is_lower_bound else ''}${amount:,.{digits}f}"


def seconds(number: float) -> str:
    """Format a duration."""
    if number < 60:
        return f"{number:.1f} s"
    whole = round(number)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


@attrs.frozen
class FailureGroup:
    """The tasks that failed with one error."""

    error: str
    """The error of the first task, in one line."""
    tasks: Sequence[TaskId]


def failure_groups(tree: Tree) -> list[FailureGroup]:
    """Group the failed tasks of a tree, the most frequent error first.

    Errors that differ only in numbers are the same. `viewer/sources/run/failures.js` does the same.
    """
    groups: dict[str, FailureGroup] = {}
    tasks: dict[str, list[TaskId]] = {}
    for task in tree:
        node = tree[task]
        if node.status not in FAILURES:
            continue
        error = one_line(node.error[:ERROR_CHARACTERS]) or node.status
        key = _NUMBERS.sub("#", error)
        members = tasks.setdefault(key, [])
        members.append(task)
        groups.setdefault(key, FailureGroup(error, members))
    return sorted(groups.values(), key=lambda group: -len(group.tasks))


@attrs.define
class ModelCost:
    """The usage of the tasks of one agent with one model."""

    agent: str
    model: str
    """The model that answered last in these tasks, or an empty text."""
    tasks: int = 0
    usage: Usage = attrs.field(factory=Usage)


def model_costs(history: RunHistory) -> list[ModelCost]:
    """Return the usage of a run by agent and model, the costliest first."""
    costs: dict[tuple[str, str], ModelCost] = {}
    for task in history.tree:
        node = history.tree[task]
        if not node.usage.calls:
            continue
        key = node.agent, history.models.get(task, "")
        cost = costs.setdefault(key, ModelCost(*key))
        cost.tasks += 1
        cost.usage += node.usage
    return sorted(costs.values(), key=lambda it: (-it.usage.micro_usd, -it.usage.tokens, it.agent))
