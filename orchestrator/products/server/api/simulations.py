"""`POST /v1/simulations`: the time and cost that a run would take. It calls no model."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from orchestrator.agents import Agent, Budget, Pipeline
from orchestrator.ports.execution import reachable_agents
from orchestrator.products.history import ports as history
from orchestrator.products.server.api import runs
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.transport.errors import CLIENT_CLOSED_REQUEST, HttpError
from orchestrator.products.server.transport.sse import wait_unless_disconnected

SECONDS: Final = 3
"""The length of a simulation, in seconds of the machine."""
MOST_SEEDS: Final = 100

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class NewSimulation(msgspec.Struct, kw_only=True):
    """A run to simulate, and the assumptions about it."""

    model: Annotated[str, doc("The name of the agent.")] = ""
    agent: Annotated[str, doc("The same as `model`, which wins if both are set.")] = ""
    input: Annotated[Any, doc("The goal: text, or any JSON that the pipeline takes.")]
    language_model: Annotated[str | None, doc("A model that replaces the agent's own.")] = None
    budget: runs.RunBudget | None = None
    fan_out: Annotated[
        str,
        msgspec.Meta(
            pattern="^[0-9]{1,3}(,[0-9]{1,3}){0,9}$",
            description="The number of tasks that an agent delegates, by its level from the root"
            " down: `4`, or `10,3`; the last number holds for all levels below.",
        ),
    ] = "3"
    model_seconds: Annotated[Seconds, doc("The median duration of an answer.")] = 8
    output_tokens: Annotated[
        float, msgspec.Meta(ge=0, le=1_000_000, description="The median length of an answer.")
    ] = 300
    tool_seconds: Annotated[Seconds, doc("The median duration of a tool call.")] = 1
    failure_rate: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="The share of attempts that fail.")
    ] = 0
    seeds: Annotated[
        int, msgspec.Meta(ge=1, le=MOST_SEEDS, description="The most runs to simulate.")
    ] = 50
    run_code: Annotated[
        bool,
        doc(
            "Let the functions of pipelines, hooks, checks and instructions run. They"
            " are not simulated: each seed has their real effects."
        ),
    ] = False


class Spread(msgspec.Struct, kw_only=True):
    """The range of a measure over all simulated runs. `p50` and `p95` are values that occurred."""

    min: float
    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, found: history.Quantiles, factor: float = 1) -> "Spread":
        return cls(
            min=found.min * factor,
            p50=found.p50 * factor,
            p95=found.p95 * factor,
            max=found.max * factor,
        )


class Simulation(msgspec.Struct, kw_only=True):
    """The statistics of many simulated runs of one agent."""

    object: Literal["simulation"] = "simulation"
    agent: str
    seeds: Annotated[int, doc("The number of simulated runs.")]
    seconds: Annotated[Spread, doc("The time from the question to the answer.")]
    cost: Annotated[
        Spread | None,
        doc("Micro-dollars, for models with a known price; null without such a model."),
    ]
    unpriced: Annotated[list[str], doc("The models without a known price.")]
    tokens: Spread
    calls: Annotated[Spread, doc("Calls of models, with failed ones.")]
    tasks: Spread
    limited_by: Annotated[
        str,
        doc(
            "The limit that takes most of the time: `critical path`, `failures`,"
            " `provider rate`, `slots`, `fan-out limit` or `budget`."
        ),
    ]
    sentence: Annotated[str, doc("The limit in one sentence, for people.")]
    shares: Annotated[dict[str, float], doc("The share of the time that each limit takes.")]
    endings: Annotated[dict[str, int], doc("The number of runs by ending.")]


@Operation(
    "POST",
    "/v1/simulations",
    Scope.RUN,
    Answer("The statistics", Simulation),
    body=NewSimulation,
    errors=(404, 409, 422),
)
async def create_simulation(call: ApiCall) -> Response:
    """Estimate the time and cost of a run; no model is called, and no tool runs."""
    body = await call.body(NewSimulation)
    model = runs.allowed_language_model(call, body.language_model)
    agent = runs.agent_for(call, body.model or body.agent, model)
    goal = agent.as_goal(runs.goal_of(agent, body.input))
    if not body.run_code:
        _require_no_code(agent)
    call.server.require_short([goal])
    given = {} if body.budget is None else msgspec.structs.asdict(body.budget)
    settings = history.SimulationSettings(
        fan_out=body.fan_out,
        model_seconds=body.model_seconds,
        output_tokens=body.output_tokens,
        tool_seconds=body.tool_seconds,
        failure_rate=body.failure_rate,
        seeds=body.seeds,
        rules=call.journal.read.records.rules,
        budget=Budget(**given) if given else None,
    )
    report: history.SimulationReport | None = None

    async def simulate() -> None:
        nonlocal report
        report = await history.simulate_in_thread(
            agent, goal, settings, seconds=SECONDS, limiter=call.server.simulations
        )

    if not await wait_unless_disconnected(call.request, simulate):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if report is None:
        raise HttpError(
            422,
            f"simulating {agent.name} took longer than {2 * SECONDS} s for one run; use a smaller"
            " fan_out, or run `orchestrator simulate`, which may take longer",
            code="too_large",
            param="fan_out",
        )
    return json_response(_body_of(report))


def _require_no_code(agent: Agent[Any]) -> None:
    """Refuse an agent with code of the program, which a simulation would really run."""
    own = {it.name: it for it in reachable_agents(agent) if _code_of(it)}
    if own:
        what = ", ".join(f"{_code_of(it)} of {name}" for name, it in own.items())
        raise HttpError(
            409,
            f"{what} would really run, with all effects, once for each simulated run; set run_code"
            " to allow that",
            code="runs_code",
            param="run_code",
        )


def _code_of(agent: Agent[Any]) -> str:
    kinds: Mapping[str, bool] = {
        "the program": isinstance(agent, Pipeline),
        "the hooks": bool(agent.hooks),
        "the checks": bool(agent.checks),
        "the function of the instructions": callable(agent.instructions),
    }
    return " and ".join(words for words, is_there in kinds.items() if is_there)


def _body_of(report: history.SimulationReport) -> Simulation:
    return Simulation(
        agent=report.agent,
        seeds=len(report.seeds),
        seconds=Spread.of(report.makespan),
        cost=None if report.cost is None else Spread.of(report.cost, 1_000_000),
        unpriced=list(report.unpriced),
        tokens=Spread.of(report.tokens),
        calls=Spread.of(report.calls),
        tasks=Spread.of(report.tasks),
        limited_by=report.limited_by,
        sentence=report.sentence,
        shares=dict(report.shares),
        endings=dict(report.runs),
    )
