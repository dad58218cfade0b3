"""Dependencies reach every tool and all instructions of a tree, and are in no fact."""

from collections.abc import Callable
from typing import Annotated, Any, NewType, Protocol

import attrs
import pytest
import trio

from orchestrator import MemoryJournal, delegate, open_orchestrator, run_sync
from orchestrator.agents import (
    Agent,
    CallId,
    DefinitionError,
    ScriptedModel,
    TaskContext,
    ToolCall,
    Transcript,
    agent,
    tool,
)
from orchestrator.agents.models.providers.scripted import ScriptStep
from orchestrator.delegation.events import ToolAnswered
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import facts, hand_on, run
from tests.orchestrator.test_replay import run_of


@attrs.frozen
class Shop:
    owner: str
    sold: list[str] = attrs.field(factory=list[str])


@tool
async def sell(task: TaskContext[Shop], item: str) -> str:
    """Sell an item."""
    await trio.lowlevel.checkpoint()
    task.deps.sold.append(item)
    return f"{task.deps.owner} sold {item} at {task.path} for {task.goal!r}"


@tool
def who(task: TaskContext[Shop]) -> str:
    """Return the owner, from a thread."""
    return task.deps.owner


SALE: tuple[ScriptStep, ...] = (ToolCall("sell", {"item": "tea"}), "sold")


def last_texts(transcript: Transcript) -> str:
    return "\n".join(message.text for message in transcript[2:])


def clerk(*steps: ScriptStep) -> Agent[str, Any, Shop]:
    model = ScriptedModel(steps or SALE)
    return Agent("clerk", model=model, deps=Shop, tools=[sell, who])


@pytest.mark.realtime
async def test_tools_get_the_dependencies_of_the_run() -> None:
    shop = Shop("Ann")
    calls = [ToolCall("sell", {"item": "tea"}), ToolCall("who")]
    seller = clerk(calls, last_texts)
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(seller, "Sell tea.", deps=shop)

    assert set(done.output.splitlines()) == {"Ann sold tea at /clerk for 'Sell tea.'", "Ann"}
    assert shop.sold == ["tea"]


@pytest.mark.realtime
async def test_two_runs_at_once_have_their_own() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        outputs: dict[str, str] = {}

        async def serve(owner: str) -> None:
            seller = clerk(ToolCall("who"), last_texts)
            ran = await orchestrator.run(seller, "Who?", deps=Shop(owner))
            outputs[owner] = ran.output

        async with trio.open_nursery() as nursery:
            for owner in ("Ann", "Bob", "Cid"):
                nursery.start_soon(serve, owner)

    assert outputs == {"Ann": "Ann", "Bob": "Bob", "Cid": "Cid"}


@pytest.mark.parametrize("background", [False, True])
async def test_children_get_the_dependencies_of_their_tree(background: bool) -> None:
    shop = Shop("Ann")
    request = hand_on("Sell tea.", agent="clerk", background=background)
    model = ScriptedModel.always(lambda said: request if len(said) == 1 else "told")
    boss = Agent("boss", model=model, delegates=[clerk()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(boss, deps=shop) as session:
            await session.ask("go")
            await session.wait_idle()

    assert shop.sold == ["tea"]


async def test_a_pipeline_and_its_delegates_get_the_dependencies() -> None:
    seller = clerk()

    @agent
    async def shopping(task: TaskContext[Shop], item: str) -> str:
        said = await delegate(seller, f"Sell {item}.")
        return f"{task.deps.owner}: {said}"

    shop = Shop("Ann")
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(shopping, "tea", deps=shop)

    assert done.output == "Ann: sold"
    assert shop.sold == ["tea"]


async def test_a_run_without_them_does_not_begin() -> None:
    journal = MemoryJournal()
    boss = Agent("boss", model=ScriptedModel.always("x"), delegates=[clerk()])
    async with open_orchestrator(journal) as orchestrator:
        for team in (clerk(), boss):
            entries = len(journal.entries)
            with pytest.raises(DefinitionError, match="'clerk' needs deps of type Sho"):
                await orchestrator.run(team, "go")  # type: ignore[arg-type]
            with pytest.raises(DefinitionError, match="and a str was given"):
                await orchestrator.run(team, "go", deps="shop")  # type: ignore[misc]
            with pytest.raises(DefinitionError, match="needs deps"):
                async with orchestrator.open_session(team):  # type: ignore[arg-type]
                    pass
            assert len(journal.entries) == entries


async def test_a_pipeline_cannot_delegate_to_an_agent_without_its_dependencies() -> None:
    @agent
    async def shopping(item: str) -> str:
        hidden = [clerk()]
        return await delegate(hidden[0], item)

    ended = (await run(shopping, "tea")).outcome

    assert "'clerk' needs deps of type Shop" in ended.error


@pytest.mark.parametrize("value", [3, Shop("Ann"), [Shop]])
def test_a_value_is_refused_as_a_dependency_type(value: Any) -> None:
    with pytest.raises(DefinitionError, match="takes the type") as caught:
        Agent("a", model="m", deps=value)
    assert "Ann" not in str(caught.value)


@pytest.mark.parametrize(
    "type_",
    [
        Any,
        Shop,
        Shop | None,
        list[Shop],
        Callable[[], Shop],
        NewType("Name", str),
        Annotated[Shop, "ours"],
    ],
)
def test_every_type_may_be_a_dependency_type(type_: Any) -> None:
    assert Agent("a", model="m", deps=type_).deps == type_


def test_an_agent_must_have_the_dependencies_of_its_tools() -> None:
    class Bank: ...

    with pytest.raises(DefinitionError, match=r"no dependencies: Agent\(deps=Shop\)"):
        Agent("a", model="m", tools=[sell])
    with pytest.raises(DefinitionError, match="its dependencies are of type Bank"):
        Agent("a", model="m", tools=[sell], deps=Bank)
    with pytest.raises(DefinitionError, match="runs at 'gpu'"):

        @tool(place="gpu")
        async def far(task: TaskContext[Shop]) -> None:
            await trio.lowlevel.checkpoint()


async def test_a_protocol_may_be_the_dependency_type_of_a_tool() -> None:
    class Owned(Protocol):
        @property
        def owner(self) -> str: ...

    @tool
    async def name(task: TaskContext[Owned]) -> str:
        await trio.lowlevel.checkpoint()
        return task.deps.owner

    model = ScriptedModel([ToolCall("name"), lambda said: said[-1].text])
    asked = Agent("asked", model=model, tools=[name], deps=Owned)
    async with open_orchestrator(":memory:") as orchestrator:
        assert (await orchestrator.run(asked, "x", deps=Shop("Ann"))).output == "Ann"


async def test_a_tool_with_a_task_is_not_called_outside_a_turn() -> None:
    with pytest.raises(DefinitionError, match="runs in the turn of an agent"):
        await sell.run(ToolCall("sell", {"item": "x"}, id=CallId("1")))


def test_the_model_does_not_read_of_the_task() -> None:
    assert list(sell.parameters["properties"]) == ["item"]
    assert sell.takes_context
    assert sell.deps is Shop


async def test_a_resumed_run_is_given_its_dependencies_again() -> None:
    @tool(idempotent=True)
    async def sell_again(task: TaskContext[Shop]) -> str:
        await trio.lowlevel.checkpoint()
        return task.deps.owner

    def asked() -> Agent[str, Any, Shop]:
        model = ScriptedModel.always(
            lambda said: said[2].text if len(said) > 2 else ToolCall("sell_again")
        )
        return Agent("asked", model=model, tools=[sell_again], deps=Shop)

    whole = MemoryJournal()
    async with open_orchestrator(whole) as orchestrator:
        await orchestrator.run(asked(), "go", deps=Shop("Ann"))
    assert "Ann sold" not in str(whole.entries)
    answered = next(at for at, it in enumerate(whole.entries) if isinstance(it.event, ToolAnswered))
    for length in range(answered - 1, len(whole.entries) - 1):
        journal = MemoryJournal(whole.entries[:length])
        run_id = whole.entries[1].session
        async with open_orchestrator(journal) as orchestrator:
            with pytest.raises(DefinitionError, match="no journal has them"):
                await orchestrator.resume(asked(), run_id)  # type: ignore[arg-type]
            went_on = await orchestrator.resume(asked(), run_id, deps=Shop("Bob"))
        assert went_on.output == ("Ann" if length > answered else "Bob")


async def test_a_reopened_session_is_given_its_dependencies_again() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(clerk(), deps=Shop("Ann")) as session:
            await session.ask("Sell tea.")
    shop = Shop("Bob")
    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        with pytest.raises(DefinitionError, match="needs deps"):
            async with orchestrator.open_session(clerk(), session=session.id):  # type: ignore[arg-type]
                pass
        async with orchestrator.open_session(clerk(), session=session.id, deps=shop) as session:
            await session.ask("Sell tea.")

    assert shop.sold == ["tea"]


def test_a_replay_needs_no_dependencies() -> None:
    """Its tools have no effect, so nothing uses them."""

    @tool
    async def name(task: TaskContext) -> str:
        await trio.lowlevel.checkpoint()
        return task.path

    steps: list[ScriptStep] = [ToolCall("name"), "done"]
    asked = Agent("asked", model=ScriptedModel(steps), tools=[name])
    entries = run_of(asked)
    needs = Agent("asked", model=ScriptedModel(steps), tools=[name], deps=Shop)

    assert [it.message.text for it in facts(entries, ToolAnswered)] == ["/asked"]
    assert replay_sync(entries, needs).is_same


def test_a_script_gives_them_too() -> None:
    shop = Shop("Ann")

    assert run_sync(clerk(), "go", deps=shop, journal=":memory:").output == "sold"
    assert shop.sold == ["tea"]
