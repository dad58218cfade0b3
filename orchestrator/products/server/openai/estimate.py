"""The estimate of the tokens that an agent reads for a request."""

from orchestrator.agents import ModelRequest
from orchestrator.agents.models.token_estimate import estimated_input
from orchestrator.ports.sessions import InboundRequest


def estimated_tokens(request: InboundRequest) -> int:
    """Return the input of the first model call, without instructions that a function makes."""
    own = request.agent.instructions
    messages = [it.message(number) for number, it in enumerate(request.history)]
    if request.message is not None:
        messages.append(request.message)
    asked = ModelRequest(
        instructions=f"{own if isinstance(own, str) else ''}\n{request.instructions}",
        transcript=messages,
        tools=(*request.agent.tools, *request.tools),
        output=request.terms.output_schema,
    )
    return max(1, estimated_input(asked))
