"""Other tools of evaluation: the calls that they make of us, without the tools themselves.

`make evaluators` tries the tools.
"""

import asyncio  # noqa: TID251 (inspect_ai runs on it)
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from orchestrator import Agent, DefinitionError, ScriptedModel
from orchestrator.evaluation import Case
from orchestrator.products.evaluation.scorers import as_scorer
from orchestrator.testing import Harness
from tests.clients.evaluators import example
from tests.evaluation.test_evaluate import run
from tests.server.kit import TOKEN, serving


class NumericDiff:
    """A scorer of autoevals 0.4.1, as far as we call it."""

    async def eval_async(self, output: Any, expected: Any = None, **more: Any) -> Any:
        raise AssertionError("texts are scored without a loop")

    def eval(self, output: Any, expected: Any = None, **more: Any) -> Any:
        assert more == {"input": "4.5"}
        score = None if expected is None else 1 - abs(expected - output) / (expected + output)
        return SimpleNamespace(name="NumericDiff", score=score, metadata={"rationale": "close"})


@pytest.mark.parametrize("scorer", [NumericDiff(), NumericDiff], ids=["instance", "class"])
async def test_scorers_of_autoevals_get_the_typed_output(scorer: Any) -> None:
    counter = Agent("counter", model=ScriptedModel.always("4.5"), output=float)
    case = Case(name="a", inputs="4.5", expected_output=5)
    report = await run(Harness(), counter, [case], scorers=[scorer])
    [trial] = report.versions[0].trials
    assert trial.scores["NumericDiff"].value == pytest.approx(1 - 0.5 / 9.5)
    assert trial.scores["NumericDiff"].reason == "close"


def test_a_class_that_needs_arguments_is_refused() -> None:
    class Closer(NumericDiff):
        def __init__(self, by: float) -> None:
            self.by = by

    with pytest.raises(DefinitionError, match="Closer is a class"):
        as_scorer(Closer)


async def test_the_request_of_promptfoo_is_answered() -> None:
    """Promptfoo 0.121.20 sends exactly this, and reads these fields."""
    team = Agent("team", model=ScriptedModel.always("Paris"))
    body = (
        b'{"model":"team","messages":[{"role":"user","content":"France"}],'
        b'"max_tokens":1024,"temperature":0}'
    )
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {TOKEN}",
        "x-promptfoo-version": "0.121.20",
        "accept": "*/*",
        "sec-fetch-mode": "cors",
        "user-agent": "node",
    }
    async with serving(team) as served:
        answer = await served.http.post("/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 200
    found = answer.json()
    assert found["choices"][0]["message"]["content"] == "Paris"
    usage = found["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0


class Recorder:
    """Takes any arguments, and keeps them."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.named = given, named


@pytest.mark.realtime
def test_the_adapter_for_inspect_runs_a_team_for_each_sample(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_is(function: Any) -> Any:
        return function

    def from_content(model: str, content: str) -> Any:
        return SimpleNamespace(model=model, message=SimpleNamespace(text=content))

    team = Agent("team", model=ScriptedModel.always(lambda said: said[-1].text.upper()))
    stand_ins: dict[str, dict[str, Any]] = {
        "inspect_ai": {"Task": Recorder, "task": as_is},
        "inspect_ai.agent": {"Agent": object, "AgentState": object, "agent": as_is},
        "inspect_ai.dataset": {"Sample": Recorder},
        "inspect_ai.model": {"ModelOutput": SimpleNamespace(from_content=from_content)},
        "inspect_ai.scorer": {"match": Recorder},
        "team": {"team": team},
    }
    for name, values in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    exec(compile(example("from inspect_ai import"), "capitals.py", "exec"), variables)

    task = variables["capitals"]()
    [sample] = task.named["dataset"]
    assert sample.named == {"input": "France", "target": "Paris"}
    state = SimpleNamespace(messages=[SimpleNamespace(text="paris")], output=None)
    asyncio.run(task.named["solver"](state))
    assert state.output.model == "orchestrator/team"
    assert state.messages[-1].text == "PARIS"
