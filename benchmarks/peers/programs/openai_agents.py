"""The workloads with the OpenAI Agents SDK: children are tools of the parent, without tracing."""

from harness import answers, main
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled

set_tracing_disabled(True)


class Scripted(Model):
    def __init__(self, children=0):
        self.children = children

    async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002
        await answers.wait()
        last = input[-1] if isinstance(input, list) else {}
        if self.children and last.get("type") != "function_call_output":
            output = [
                ResponseFunctionToolCall(
                    arguments='{"input":"say ok"}',
                    call_id=f"c{it}",
                    name="delegate",
                    type="function_call",
                )
                for it in range(self.children)
            ]
        else:
            text = ResponseOutputText(annotations=[], text="ok", type="output_text")
            output = [
                ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    # The workloads do not stream.
    stream_response = get_response


def parent_of(child, children):
    tool = child.as_tool("delegate", "Delegate a task.")
    return Agent(name="parent", model=Scripted(children), tools=[tool])


def fan_out(children):
    return runner(parent_of(Agent(name="child", model=Scripted()), children))


def chain(depth):
    agent = Agent(name="last", model=Scripted())
    for _ in range(depth):
        agent = parent_of(agent, 1)
    return runner(agent)


def runner(agent):
    config = RunConfig(tracing_disabled=True)

    async def run():
        assert (await Runner.run(agent, "go", run_config=config)).final_output == "ok"

    return run


main("openai-agents", fan_out, chain)
