"""`POST /v1/simulations`: what a run would take and cost, in virtual time; no model is asked."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from orchestrator.agents import Agent, Budget, Pipeline
from orchestrator.kernel.execution.agent_registry import reachable_agents
from orchestrator.products.history.simulation import Quantiles, SimulationReport, SimulationSettings
from orchestrator.products.history.simulation.in_thread import simulate_in_thread
from orchestrator.products.server.api.runs import (
    RunBudget,
    agent_for,
    goal_of,
    language_model_label,
)
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, operation
from orchestrator.products.server.transport.errors import CLIENT_CLOSED_REQUEST, HttpError
from orchestrator.products.server.transport.sse import wait_unless_disconnected

SECONDS: Final = 3
"""How long a simulation goes on, in seconds of the machine."""
MOST_SEEDS: Final = 100

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class NewSimulation(msgspec.Struct, kw_only=True):
    """A run that is not made, and what is assumed of it."""

    model: Annotated[str, msgspec.Meta(description="Which agent.")] = ""
    agent: Annotated[
        str, msgspec.Meta(description="The same; `model` counts where both are there.")
    ] = ""
    input: Annotated[
        Any, msgspec.Meta(description="The goal: text, or any JSON that the pipeline takes.")
    ]
    language_model: Annotated[
        str | None, msgspec.Meta(description="The model of the agent, instead of its own.")
    ] = None
    budget: RunBudget | None = None
    fan_out: Annotated[
        str,
        msgspec.Meta(
            pattern="^[0-9]{1,3}(,[0-9]{1,3}){0,9}$",
            description="How many tasks an agent delegates, by its level from the root downwards:"
            " `4`, or `10,3`; the last number holds for all below.",
        ),
    ] = "3"
    model_seconds: Annotated[
        Seconds, msgspec.Meta(description="How long half of the answers take at most.")
    ] = 8
    output_tokens: Annotated[
        float,
        msgspec.Meta(ge=0, le=1_000_000, description="How long half of the answers are at most."),
    ] = 300
    tool_seconds: Annotated[
        Seconds, msgspec.Meta(description="How long half of the tools take at most.")
    ] = 1
    failure_rate: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Which share of all attempts fails.")
    ] = 0
    seeds: Annotated[
        int, msgspec.Meta(ge=1, le=MOST_SEEDS, description="How many runs, at most.")
    ] = 50
    run_code: Annotated[
        bool,
        msgspec.Meta(
            description="Let the functions of pipelines, hooks, checks and instructions run: they"
            " are not simulated, and have their effects, once for each seed."
        ),
    ] = False


class Spread(msgspec.Struct, kw_only=True):
    """A measure over all simulated runs. `p50` and `p95` are values that occurred."""

    min: float
    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, found: Quantiles, factor: float = 1) -> "Spread":
        return cls(
            min=found.min * factor,
            p50=found.p50 * factor,
            p95=found.p95 * factor,
            max=found.max * factor,
        )


class Simulation(msgspec.Struct, kw_only=True):
    """What many simulated runs of one agent took."""

    object: Literal["simulation"] = "simulation"
    agent: str
    seeds: Annotated[int, msgspec.Meta(description="How many runs were simulated.")]
    seconds: Annotated[Spread, msgspec.Meta(description="From the question to the answer.")]
    cost: Annotated[
        Spread | None,
        msgspec.Meta(
            description="Micro-dollars, of the models whose price is known; null if none is."
        ),
    ]
    unpriced: Annotated[list[str], msgspec.Meta(description="The models whose price is not known.")]
    tokens: Spread
    calls: Annotated[Spread, msgspec.Meta(description="Of models, failed ones too.")]
    tasks: Spread
    limited_by: Annotated[
        str,
        msgspec.Meta(
            description="What most of the time is spent on: `critical path`, `failures`,"
            " `provider rate`, `slots`, `fan-out limit` or `budget`."
        ),
    ]
    sentence: Annotated[str, msgspec.Meta(description="The same, for people.")]
    shares: Annotated[
        dict[str, float],
        msgspec.Meta(description="Which share of the time is spent on each of these."),
    ]
    endings: Annotated[dict[str, int], msgspec.Meta(description="How many runs ended how.")]


@operation(
    "POST",
    "/v1/simulations",
    Scope.RUN,
    Answer("The statistics", Simulation),
    body=NewSimulation,
    errors=(404, 409, 422),
)
async def create_simulation(call: ApiCall) -> Response:
    """What a run would take and cost; no model is asked, and no tool is run."""
    body = await call.body(NewSimulation)
    labels = language_model_label(call, body.language_model)
    agent = agent_for(call, body.model or body.agent, labels)
    goal = agent.as_goal(goal_of(agent, body.input))
    if not body.run_code:
        _require_no_code(agent)
    call.server.require_short([goal])
    given = {} if body.budget is None else msgspec.structs.asdict(body.budget)
    settings = SimulationSettings(
        fan_out=body.fan_out,
        model_seconds=body.model_seconds,
        output_tokens=body.output_tokens,
        tool_seconds=body.tool_seconds,
        failure_rate=body.failure_rate,
        seeds=body.seeds,
        rules=call.journal.read.ledger.rules,
        budget=Budget(**given) if given else None,
    )
    report: SimulationReport | None = None

    async def simulate() -> None:
        nonlocal report
        report = await simulate_in_thread(
            agent, goal, settings, seconds=SECONDS, limiter=call.server.simulations
        )

    if not await wait_unless_disconnected(call.request, simulate):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if report is None:
        raise HttpError(
            422,
            f"not one run of {agent.name} was simulated in {2 * SECONDS} s; assume a smaller"
            " fan_out, or let `orchestrator simulate` take longer",
            code="too_large",
            param="fan_out",
        )
    return json_response(_body_of(report))


def _require_no_code(agent: Agent[Any]) -> None:
    """Refuse to simulate an agent that has code of the program, which would really run."""
    own = {it.name: it for it in reachable_agents(agent) if _code_of(it)}
    if own:
        what = ", ".join(f"{_code_of(it)} of {name}" for name, it in own.items())
        raise HttpError(
            409,
            f"{what} would really run, with all effects, once for each simulated run; allow it"
            " with run_code",
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


def _body_of(report: SimulationReport) -> Simulation:
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


OPERATIONS: Final = (create_simulation,)
