"""Agents in a FastAPI application: `uvicorn fastapi_app:app`, from this folder.

The application opens one orchestrator, and all requests use it. A client that hangs up cancels its
run, with everything in it. The tool is a function of asyncio, like the rest of the application.

`python examples/fastapi_app.py` serves it and asks it, to show what it answers.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from models import NAMED
from pydantic import BaseModel

from orchestrator import (
    Agent,
    ScriptedModel,
    TextWritten,
    ToolCall,
    ToolReturned,
    Transcript,
    UserMessage,
)
from orchestrator.asyncio import (
    ClientGoneError,
    Orchestrator,
    open_orchestrator,
    tool,
    while_connected,
)


@tool
async def stock(article: str) -> int:
    """Return how many pieces of an article are in stock."""
    await asyncio.sleep(0)  # a query of the shop's database, on asyncio
    return {"teapot": 12}.get(article, 0)


def look_up(transcript: Transcript) -> ToolCall | str:
    last = transcript[-1]
    if isinstance(last, UserMessage):
        return ToolCall("stock", {"article": last.text.split()[-1].strip("?")})
    return f"We have {last.text}."


clerk = Agent(
    "clerk",
    instructions="Answer questions about the stock of a shop.",
    model=NAMED or ScriptedModel.always(look_up),
    tools=[stock],
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with open_orchestrator(":memory:") as orchestrator:
        app.state.orchestrator = orchestrator
        yield


app = FastAPI(lifespan=lifespan)


class Question(BaseModel):
    text: str


def orchestrator_of(request: Request) -> Orchestrator:
    orchestrator: Orchestrator = request.app.state.orchestrator
    return orchestrator


@app.post("/ask")
async def answer_question(question: Question, request: Request) -> dict[str, str]:
    orchestrator = orchestrator_of(request)
    run = await while_connected(request, orchestrator.run(clerk, question.text))
    return {"answer": run.output, "run": run.id}


@app.post("/stream")
async def stream_answer(question: Question, request: Request) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async with orchestrator_of(request).stream(clerk, question.text) as run:
            async for event in run:
                match event:
                    case TextWritten(text=text):
                        yield f"data: {json.dumps({'text': text})}\n\n"
                    case ToolReturned(call=call):
                        yield f"data: {json.dumps({'tool': call.name})}\n\n"
                    case _:
                        pass

    return StreamingResponse(lines(), media_type="text/event-stream")


@app.exception_handler(ClientGoneError)
def forget(_: Request, __: ClientGoneError) -> Response:
    return Response(status_code=499)


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve([listener]))
        async with httpx2.AsyncClient(base_url=address, trust_env=False) as client:
            question = {"text": "How many of the teapot?"}
            answered = await client.post("/ask", json=question)
            streamed = await client.post("/stream", json=question)
        server.should_exit = True
    print(answered.json()["answer"])
    for line in filter(None, streamed.text.splitlines()):
        for kind, what in json.loads(line.removeprefix("data: ")).items():
            print(f"streamed {kind}: {what}")


if __name__ == "__main__":
    asyncio.run(main())

# prints:
# We have 12.
# streamed tool: stock
# streamed text: We have 12.
