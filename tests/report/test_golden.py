"""Two folds of one journal agree: the ledger's in Python, and the viewer's in the browser."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import asdict

from orchestrator.agents import Usage
from orchestrator.delegation import Encoded, Ledger, SessionRecord, Status, TaskId, Tree, decode
from orchestrator.delegation.events import Entry, ProcessFact, WorkFact
from orchestrator.delegation.tree.collapse import collapse_tree
from orchestrator.delegation.tree.tally import STATUSES
from orchestrator.kernel.journal.journal import fold_entries
from orchestrator.kernel.journal.run_history import read_history
from orchestrator.products import viewer
from orchestrator.products.history.report.packed_tree import columns_of
from orchestrator.products.history.report.summary import STATUS_DISPLAY
from tests.delegation.fact_strategies import Facts
from tests.golden.make import lines
from tests.report.browser import Browser, Page
from tests.report.conftest import Opened, Written

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("*.ndjson"))
BUDGETS = (1, 2, 5, 9, 12, 20, 30, 60, 500)
TASKS = "model => model.ids.map((_, number) => model.task(number))"
REDUCE = f"""
text => {{
    const ledger = new delegation.Ledger();
    text.trim().split('\\n').forEach(line => ledger.fold(JSON.parse(line)));
    const tasks = {TASKS};
    return Object.fromEntries([...ledger.sessions].map(([id, session]) =>
        [id, tasks(session.model)]));
}}
"""
FOLLOWS = """
(text, toCome) => {
    const ledger = new delegation.Ledger();
    const facts = text.trim().split('\\n').map(line => JSON.parse(line));
    facts.forEach(fact => ledger.fold(fact));
    return Object.fromEntries([...ledger.sessions].map(([id, {model}]) => [id, [
        delegation.criticalPath(model, facts.at(-1).at).map(it => model.ids[it]),
        Object.fromEntries([...model.waits].map(([number, spans]) => [model.ids[number], spans])),
        model.awaited,
        Object.values(delegation.progressOf(model, toCome[id], facts.at(-1).at))]]));
}
"""
FOLD = """
(columns, budgets) => {
    const model = delegation.modelOf(columns);
    const rollups = new delegation.Rollups(model);
    const collapsed = new delegation.CollapsedTree(model, rollups);
    return budgets.map(budget => {
        collapsed.fit(budget);
        return collapsed.rows().map(row => [
            row.key, row.kind, row.level - 1, row.members?.length ?? 1,
            row.kind === 'more' || !row.canExpand ? null : row.isExpanded,
            row.isExpanded ? 0 : collapsed.hidden(row)]);
    });
}
"""
PEAK = """
columns => delegation.peakOf(delegation.workChanges(delegation.modelOf(columns)))
"""


def amounts(usage: Usage) -> dict[str, int]:
    """Return a usage as the page counts it: a saving that is not there is 0."""
    return {name: amount or 0 for name, amount in asdict(usage).items()}


def test_the_viewer_folds_all_facts_of_work_and_of_processes() -> None:
    sources = Path(viewer.__file__).parent / "sources"
    ledger = (sources / "run" / "ledger.js").read_text()
    kinds = [it.__name__ for it in (*get_args(WorkFact), *get_args(ProcessFact))]

    missing = [kind for kind in kinds if not re.search(rf"\b{kind}\b", ledger)]
    assert missing == []


def call(page: Page, function: str, *arguments: object) -> Any:
    given = ", ".join(map(json.dumps, arguments))
    return page.run(f"({function})({given})")


def read(file: Path) -> list[Entry]:
    entries: list[Entry] = []
    for line in file.read_text().splitlines():
        fact = json.loads(line)
        body = json.dumps(fact["body"]).encode()
        event = decode(Encoded(fact["kind"], fact["version"], body))
        entries.append(Entry(fact["seq"], fact["at"], fact["session"], event))
    return entries


def tasks_of(session: SessionRecord) -> list[dict[str, Any]]:
    """Return all that the tree says of each task, as JSON has it."""
    tree = session.tree
    return [
        {
            "id": task,
            **{
                name: amounts(value) if name in {"usage", "total"} else value
                for name, value in tree[task].attributes().items()
            },
            "needs": tree.needs(task),
        }
        for task in tree
    ]


def forget_slots(there: list[dict[str, Any]], here: list[dict[str, Any]]) -> None:
    """Call a task that waits for a slot after a crash queued, as the ledger does.

    The viewer knows no slots, and calls it interrupted until it starts again.
    """
    for shown, known in zip(there, here, strict=True):
        if shown["status"] == "interrupted" and known["status"] is Status.QUEUED:
            shown["status"] = Status.QUEUED


def assert_same_follows(page: Page, text: str, ledger: Ledger, now: float) -> None:
    """Compare what follows from a tree at a moment: its critical path, waits and progress."""
    trees = {id_: session.tree for id_, session in ledger.sessions.items()}
    to_come = {id_: tree.to_come for id_, tree in trees.items()}
    here = {
        id_: [
            tree.critical_path(now=now).tasks,
            {task: [list(it) for it in spans] for task, spans in tree.provider_waits.items()},
            [list(it) for it in tree.awaited],
            pytest.approx([*attrs.astuple(tree.progress(now=now))]),
        ]
        for id_, tree in trees.items()
    }

    assert call(page, FOLLOWS, text, to_come) == here


def rows_of(tree: Tree, budget: int) -> list[list[Any]]:
    return [
        [row.key, row.kind, row.depth, row.members, row.is_expanded, row.hidden.tasks]
        for row in collapse_tree(tree, rows=budget).rows
    ]


@pytest.fixture(scope="module")
def page(few: Written, browser: Browser) -> Iterator[Page]:
    opened = browser.open(few.file)
    opened.run("delegation.opened")
    yield opened
    opened.close()


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_both_folds_agree_on_every_task(file: Path, page: Page) -> None:
    """Status, parent, times, own and total usage, cost and errors: exactly."""
    text = file.read_text()
    for end in _prefixes(text):
        entries = read_text(end)
        ledger = fold_entries(entries, file)
        here = {id_: tasks_of(session) for id_, session in ledger.sessions.items()}

        assert call(page, REDUCE, end) == here
        assert_same_follows(page, end, ledger, entries[-1].at)


def read_text(text: str) -> list[Entry]:
    return [entry for line in text.splitlines() for entry in [_entry(line)]]


def _entry(line: str) -> Entry:
    fact = json.loads(line)
    event = decode(Encoded(fact["kind"], fact["version"], json.dumps(fact["body"]).encode()))
    return Entry(fact["seq"], fact["at"], fact["session"], event)


def _prefixes(text: str) -> Iterable[str]:
    """Yield a journal as it was after each fact; of a long one, after some."""
    facts = text.splitlines()
    step = max(1, len(facts) // 30)
    for end in range(2, len(facts), step):
        yield "\n".join(facts[:end])
    yield "\n".join(facts)


def test_both_folds_agree_for_every_order_of_facts(page: Page) -> None:
    journals: list[Sequence[Entry]] = []

    class Collected(Facts):
        def __init__(self) -> None:
            super().__init__(lambda _: None)

        def teardown(self) -> None:
            if len(self.entries) > 5:
                journals.append(self.entries)

    run_state_machine_as_test(
        Collected,
        settings=settings(
            max_examples=40,
            stateful_step_count=50,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

    assert len(journals) > 20
    for entries in journals:
        ledger = fold_entries(entries, "machine")
        here = {id_: tasks_of(session) for id_, session in ledger.sessions.items()}
        text = "\n".join(lines(entries))

        there = call(page, REDUCE, text)
        for session, tasks in here.items():
            forget_slots(there[session], tasks)
        assert there == here
        assert_same_follows(page, text, ledger, entries[-1].at)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_both_fold_a_tree_into_the_same_rows(file: Path, page: Page) -> None:
    entries = read(file)
    run = next(entry.session for entry in entries if entry.session)
    history = read_history(run, entries, has_writer=True, wants_transcript=lambda _: False)
    columns = msgspec.to_builtins(columns_of(history), str_keys=True)

    there = call(page, FOLD, columns, BUDGETS)

    assert there == [rows_of(history.tree, budget) for budget in BUDGETS]
    peak = history.tree.parallelism(now=history.last_at).peak
    assert call(page, PEAK, columns) == peak


def test_both_fold_a_large_tree_into_the_same_rows(
    some: Written, many: Written, opened: Opened
) -> None:
    for report in (some, many):
        page = opened(report)
        there = page.run(
            f"({FOLD.replace('delegation.modelOf(columns)', 'columns')})"
            f"(delegation.viewer.model, {[*BUDGETS]})"
        )

        assert there == [rows_of(report.tree, budget) for budget in BUDGETS]
        peak = report.tree.parallelism(now=report.history.last_at).peak
        assert (
            page.run(
                f"({PEAK.replace('delegation.modelOf(columns)', 'columns')})"
                "(delegation.viewer.model)"
            )
            == peak
        )


def test_the_columns_carry_the_tree(some: Written, opened: Opened) -> None:
    there = opened(some).run(f"({TASKS})(delegation.viewer.model)")

    assert len(there) == len(some.tree)
    for task in there:
        node = some.tree[TaskId(task["id"])]
        for name in ("parent", "agent", "label", "path", "mode", "reason", "error"):
            assert task[name] == getattr(node, name)
        assert task["status"] == node.status
        assert task["usage"] == amounts(node.usage)
        assert task["total"] == amounts(node.total)
        for name in ("requested", "started", "ended"):
            assert task[name] == pytest.approx(getattr(node, name), abs=0.0015)


def test_both_show_a_status_in_the_same_way(page: Page) -> None:
    there = page.run(
        "Object.entries(delegation.STATUSES).map("
        "([status, it]) => [status, [it.glyph, it.word, it.group]])"
    )

    assert sorted(STATUSES) == sorted(STATUS_DISPLAY)
    assert {status: tuple(shown) for status, shown in there} == STATUS_DISPLAY
