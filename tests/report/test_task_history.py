"""A task's own facts give the transcript that all facts of its run give."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from orchestrator.delegation import TaskId
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal.reader import EntriesReader
from orchestrator.kernel.journal.run_history import read_history
from orchestrator.kernel.journal.task_history import read_task_transcript
from tests.delegation.fact_strategies import Facts


def test_the_history_of_a_task_equals_the_one_of_the_whole_run() -> None:
    journals: list[Sequence[Entry]] = []

    class Collected(Facts):
        def __init__(self) -> None:
            super().__init__(lambda _: None)

        def teardown(self) -> None:
            journals.append(self.entries)

    run_state_machine_as_test(
        Collected,
        settings=settings(
            max_examples=90,
            stateful_step_count=80,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

    compared: Counter[str] = Counter()
    for entries in journals:
        reader = EntriesReader(entries)
        for session in reader.sessions():
            history = read_history(
                session, reader.entries(session), has_writer=True, wants_transcript=lambda _: True
            )
            for task, whole in history.transcripts.items():
                if whole.outcome is None or task == history.tree.root:
                    continue
                named = reader.naming(task, session=session)
                own = read_task_transcript(session, TaskId(task), named)
                if own is None:
                    needs = bool(history.tree.needs(task))
                    compared["with others" if needs else "not alone"] += 1
                    continue
                compared["alone"] += 1
                assert own == whole
                assert [it.id for it in own.messages] == [it.id for it in whole.messages]
    assert compared["alone"] > 30, compared
    assert compared["not alone"] < compared["alone"] / 10, compared
