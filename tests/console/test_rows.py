"""The rows of a run at rest, which another process reads."""

from pathlib import Path

import attrs
import msgspec
import pytest
from msgspec.structs import astuple

from orchestrator.delegation import Rules, TaskId
from orchestrator.products.server.past_runs import Question, answer_question
from tests.server.kit import serving
from tests.server.runs_kit import boss, ended, started

pytestmark = pytest.mark.realtime


async def test_another_process_reads_the_same_rows(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(boss(background=False), journal=journal) as served:
        run = (await started(served, "boss"))["id"]
        await ended(served, run)
        tree = served.orchestrator.read.tree(run)
        question = Question(journal=str(journal), run=run, rules=attrs.asdict(Rules()), rows=True)

        message = msgspec.json.decode(answer_question(msgspec.json.encode(question)))

        assert message["reset"]
        assert not message["working"]
        assert [row[0] for row in message["rows"]] == [*tree]
        for row in message["rows"]:
            id_, status, began, until, error, usage, abandoned, waits, parent, agent, *_ = row
            node = tree[TaskId(id_)]
            assert (abandoned, waits) == (node.abandoned, [])
            assert (status, parent, agent) == (node.status, node.parent, node.agent)
            assert (began, until, error) == (node.started, node.ended, node.error)
            assert usage == [amount or 0 for amount in astuple(node.usage)]
