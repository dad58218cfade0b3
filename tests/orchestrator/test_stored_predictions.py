"""A new process begins with the predictions of earlier ones."""

from pathlib import Path

import pytest
import trio

from orchestrator import (
    Agent,
    AssistantMessage,
    MemoryJournal,
    Rules,
    Usage,
    agent,
    delegate,
    map_each,
    open_orchestrator,
)
from orchestrator.agents.models.samples import Samples
from orchestrator.kernel.engine.stored_predictions import (
    SAVE_SECONDS,
    STORED_KINDS,
    StoredPredictions,
)
from orchestrator.kernel.engine.workload import Predictions
from orchestrator.models import Limiter, ModelRequest, with_rate_limit

SUFFIX = ".predictions"


class BriefModel:
    """Takes a moment for each answer."""

    name = "brief"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        del request
        await trio.sleep(0.001)
        return AssistantMessage("ok", usage=Usage(calls=1))


def read_by_the_next_process(journal: Path) -> Predictions:
    predictions = Predictions()
    StoredPredictions(journal, predictions.tables)
    return predictions


@pytest.mark.realtime
async def test_the_next_process_has_the_predictions_of_a_run_that_ended(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    worker = Agent("worker", model=with_rate_limit(BriefModel(), Limiter(in_flight=2)))

    @agent
    async def research(goal: str) -> str:
        """Ask one worker, then five at once."""
        await delegate(worker, goal)
        await delegate(map_each(worker), [goal] * 5)
        return "done"

    async with open_orchestrator(journal, rules=Rules(live_tasks=100)) as orchestrator:
        await orchestrator.run(research, "go")

    predictions = read_by_the_next_process(journal)
    assert 0 < predictions.call_seconds("worker") < 2
    assert predictions.unseen.mean(("research", "worker", 0)) is not None
    assert predictions.left.mean(("worker", 0))
    # Another journal of the same folder has the same predictions.
    assert read_by_the_next_process(tmp_path / "journals" / "journal-2.db").calls
    assert (tmp_path / f"journal.db{SUFFIX}").stat().st_mode & 0o077 == 0


@pytest.mark.realtime
async def test_a_program_without_limits_stores_no_predictions(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(Agent("worker", model=BriefModel()), "go")

    assert not (tmp_path / f"journal.db{SUFFIX}").exists()


async def test_predictions_are_stored_at_most_every_half_minute(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    predictions = Predictions()
    stored = StoredPredictions(journal, predictions.tables)
    predictions.add_call("worker", 10, 4.0)

    stored.save()
    predictions.add_call("other", 10, 4.0)
    stored.save()
    assert "other" not in read_by_the_next_process(journal).calls

    await trio.sleep(SAVE_SECONDS)
    stored.save()
    assert read_by_the_next_process(journal).call_seconds("other", 10) == 4.0


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"\xff", b'{"calls": [["worker", ["x"]]]}', b'{"calls": [["a", [-1]]]}']
)
async def test_a_damaged_file_of_predictions_is_replaced(tmp_path: Path, text: bytes) -> None:
    journal = tmp_path / "journal.db"
    file = tmp_path / f"journal.db{SUFFIX}"
    file.write_bytes(text)
    file.chmod(0o600)
    predictions = Predictions()

    stored = StoredPredictions(journal, predictions.tables)
    assert not predictions.calls

    predictions.add_call("worker", 10, 4.0)
    await trio.sleep(SAVE_SECONDS)
    stored.save()
    assert read_by_the_next_process(journal).calls


async def test_a_file_of_predictions_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    file = tmp_path / f"journal.db{SUFFIX}"
    file.write_bytes(b'{"calls": [["worker", [4.0]]]}')
    file.chmod(0o666)
    predictions = Predictions()

    stored = StoredPredictions(journal, predictions.tables)
    await trio.sleep(SAVE_SECONDS)
    stored.save()

    assert not predictions.calls
    assert file.read_bytes() == b'{"calls": [["worker", [4.0]]]}'


async def test_the_stored_file_is_bounded(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    predictions = Predictions()
    stored = StoredPredictions(journal, predictions.tables)
    for number in range(2 * STORED_KINDS):
        predictions.calls[f"agent{number}"] = Samples([1.23456] * 64)
    await trio.sleep(SAVE_SECONDS)
    stored.save()

    read = read_by_the_next_process(journal).calls
    assert next(iter(read)) == f"agent{STORED_KINDS}"
    assert len(read) == STORED_KINDS
    assert (tmp_path / f"journal.db{SUFFIX}").stat().st_size < 200_000


async def test_a_journal_in_memory_has_no_file_of_predictions() -> None:
    worker = Agent("worker", model=with_rate_limit(BriefModel(), Limiter(in_flight=1)))
    async with open_orchestrator(MemoryJournal()) as orchestrator:
        run = await orchestrator.run(worker, "go")

    assert run.outcome.succeeded
