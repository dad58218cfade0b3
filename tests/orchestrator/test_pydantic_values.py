"""Values of pydantic go through pipelines, through crashes after any entry, and through replays."""

import pydantic
import trio

from orchestrator import Settled, delegate, map_each
from orchestrator.agents import Agent, Pipeline, ScriptedModel, agent
from orchestrator.delegation.events import TurnEnded
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import continue_session, facts
from tests.orchestrator.test_pipeline_recovery import asked_for
from tests.orchestrator.test_replay import run_of


class Topic(pydantic.BaseModel):
    name: str = pydantic.Field(alias="topicName", min_length=1)
    words: set[str] = set()


class Finding(pydantic.BaseModel):
    topic: Topic
    stars: pydantic.PositiveInt


def report() -> Pipeline[object, str]:
    """Return a pipeline whose every value is of pydantic."""
    plan = Agent(
        "plan",
        model=ScriptedModel.always(
            '[{"topicName": "a", "words": ["x", "y", "z"]}, {"topicName": "b"}]', 1
        ),
        output=list[Topic],
    )

    @agent
    async def research(topic: Topic) -> Finding:
        if topic.name == "b":
            raise RuntimeError("there is nothing about b")
        await trio.sleep(1)
        return Finding(topic=topic, stars=3)

    @agent
    async def check(finding: Finding) -> Finding:
        await trio.sleep(1)
        return finding.model_copy(update={"stars": 4})

    @agent
    async def write(findings: tuple[Settled[Finding], ...]) -> str:
        checked = [await delegate(check, it.result()) for it in findings[:1]]
        return f"{checked[0].stars} {sorted(checked[0].topic.words)} {findings[1].error}"

    return plan >> map_each(research).settled() >> write


async def test_values_of_pydantic_go_on_after_any_crash() -> None:
    whole = await continue_session(report(), [], takes_replies=True)
    answers = [fact.outcome.output for fact in facts(whole, TurnEnded)]

    assert len(answers) == 1
    assert answers[0].startswith("4 ['x', 'y', 'z'] RuntimeError: there is nothing")
    for length in range(1, len(whole)):
        entries = await continue_session(report(), whole[:length], takes_replies=True)

        assert asked_for(entries) == asked_for(whole), length
        ended = [fact.outcome.output for fact in facts(entries, TurnEnded)]
        assert ended == answers, length


def test_a_replay_reads_the_same_values() -> None:
    assert replay_sync(run_of(report()), report()).is_same
