"""Chat completions over real HTTP: what a server hears, and what we make of its answers."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import attrs
import h11
import msgspec
import pytest
import trio

from agents import (
    Agent,
    AssistantMessage,
    CallId,
    Message,
    ModelError,
    ModelRequest,
    Step,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    model_named,
    take_turn,
    tool,
)
from agents.models.openai import OpenAIModel

pytestmark = pytest.mark.realtime

HELLO = UserMessage("hello")


@attrs.frozen
class Heard:
    """A request, as the server got it."""

    target: str
    key: str
    body: Any


@attrs.frozen
class Reply:
    """What the server answers."""

    body: bytes
    status: int = 200


HANG_UP = None


class Server:
    """Gives its replies one after the other, and is silent when there are none left."""

    def __init__(self) -> None:
        self.url = ""
        self.replies: list[Reply | None] = []
        self.heard: list[Heard] = []
        self.connections = 0
        self.was_left = trio.Event()
        self._was_asked = trio.Event()

    async def wait_asked(self, times: int = 1) -> None:
        while len(self.heard) < times:
            await self._was_asked.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        http = h11.Connection(h11.SERVER)
        async with stream:
            while (heard := await _hear(http, stream)) is not None:
                self.heard.append(heard)
                self._was_asked.set()
                self._was_asked = trio.Event()
                if not self.replies:
                    continue
                if (reply := self.replies.pop(0)) is HANG_UP:
                    return
                await _say(http, stream, reply)
                http.start_next_cycle()
            self.was_left.set()


async def _hear(http: h11.Connection, stream: trio.SocketStream) -> Heard | None:
    target, key, body = b"", b"", b""
    while True:
        match http.next_event():
            case h11.Request() as request:
                headers = dict(request.headers)
                target, key = request.target, headers.get(b"authorization", b"")
            case h11.Data(data=data):
                body += data
            case h11.EndOfMessage():
                return Heard(target.decode(), key.decode(), msgspec.json.decode(body))
            case h11.ConnectionClosed():
                return None
            case _:
                http.receive_data(await stream.receive_some())


async def _say(http: h11.Connection, stream: trio.SocketStream, reply: Reply) -> None:
    headers = [("content-length", str(len(reply.body)))]
    for event in (
        h11.Response(status_code=reply.status, headers=headers),
        h11.Data(data=reply.body),
        h11.EndOfMessage(),
    ):
        await stream.send_all(http.send(event) or b"")


@pytest.fixture
async def server(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> Server:
    # A proxy that the machine is set up with must not come between.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    serve = partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1")
    (listener,) = await nursery.start(serve)
    server.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
    return server


@pytest.fixture
async def model(server: Server) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("gpt-5-mini", key="sk-secret", base_url=server.url)
    yield model
    await model.aclose()


def completion(content: str | None = None, *calls: object, **more: object) -> Reply:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return Reply(msgspec.json.encode({"id": "chat-1", "choices": [choice], **more}))


def wire_call(call: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call, "type": "function", "function": function}


async def ask(model: OpenAIModel, *transcript: Message) -> AssistantMessage:
    return await model.answer(
        ModelRequest(instructions="", transcript=transcript or (HELLO,), tools=())
    )


async def test_an_answer_comes_with_what_it_used(
    server: Server, model: OpenAIModel
) -> None:
    """A price that nobody has told us is unknown, not zero."""
    used = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    server.replies = [completion("hi", usage=used)]

    assert await ask(model) == AssistantMessage(
        "hi",
        usage=Usage(calls=1, input_tokens=11, output_tokens=7, unpriced=1),
        model="openai:gpt-5-mini",
    )


async def test_a_server_need_not_count(server: Server, model: OpenAIModel) -> None:
    server.replies = [completion("hi")]

    assert (await ask(model)).usage == Usage(calls=1, unpriced=1)


async def test_the_server_hears_who_asks_which_model_for_what(
    server: Server, model: OpenAIModel
) -> None:
    server.replies = [completion("hi")]

    await model.answer(
        ModelRequest(instructions="Be kind.", transcript=[HELLO], tools=())
    )

    assert server.heard == [
        Heard(
            "/v1/chat/completions",
            "Bearer sk-secret",
            {
                "model": "gpt-5-mini",
                "messages": [
                    {"role": "system", "content": "Be kind."},
                    {"role": "user", "content": "hello"},
                ],
            },
        )
    ]


async def test_a_tool_call_goes_there_and_back(
    server: Server, model: OpenAIModel
) -> None:
    """The whole turn over the wire: every answer names the call that it answers."""

    @tool
    async def double(number: int) -> int:
        """Double a number.

        Args:
            number: any.
        """
        await trio.lowlevel.checkpoint()
        return number * 2

    async def forget(_: Step) -> None:
        await trio.lowlevel.checkpoint()

    call = wire_call("call_7", "double", '{"number":21}')
    server.replies = [completion(None, call), completion("42")]
    agent = Agent("counter", model=model)

    answer = await take_turn(agent, [HELLO], model=model, tools=[double], record=forget)

    assert answer == "42"
    first, second = (heard.body for heard in server.heard)
    assert first["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "double",
                "description": "Double a number.",
                "parameters": double.parameters,
            },
        }
    ]
    assert second["tools"] == first["tools"]
    assert second["messages"] == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_7", "content": "42"},
    ]


@pytest.mark.parametrize(
    ("content", "text"), [(None, ""), ("one moment", "one moment")]
)
async def test_calls_are_read_with_their_ids_and_arguments(
    server: Server, model: OpenAIModel, content: str | None, text: str
) -> None:
    """Some servers write no arguments at all where there are none."""
    server.replies = [
        completion(
            content,
            wire_call("a", "add", '{"to":{"town":"Ulm"}}'),
            wire_call("b", "look", ""),
        )
    ]

    answer = await ask(model)

    assert answer.text == text
    assert answer.calls == (
        ToolCall("add", {"to": {"town": "Ulm"}}, id=CallId("a")),
        ToolCall("look", {}, id=CallId("b")),
    )


async def test_what_was_said_is_said_again_as_it_was(
    server: Server, model: OpenAIModel
) -> None:
    look = ToolCall("look", {"at": "ä"}, id=CallId("a"))
    server.replies = [completion("done")]

    await ask(
        model,
        HELLO,
        AssistantMessage("one moment", (look,)),
        ToolMessage(look.id, "it is dark", failed=True),
        AssistantMessage("nothing there"),
        UserMessage("look again"),
    )

    assert server.heard[0].body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "one moment",
            "tool_calls": [wire_call("a", "look", '{"at":"ä"}')],
        },
        {"role": "tool", "tool_call_id": "a", "content": "it is dark"},
        {"role": "assistant", "content": "nothing there"},
        {"role": "user", "content": "look again"},
    ]


@pytest.mark.parametrize("status", [302, 401, 429, 500])
async def test_an_http_error_is_told_with_its_text(
    server: Server, model: OpenAIModel, status: int
) -> None:
    server.replies = [Reply(b'{"error":{"message":"not you"}}', status)]

    with pytest.raises(
        ModelError, match=f"gpt-5-mini answered with HTTP {status}: .*not you"
    ):
        await ask(model)


async def test_of_a_long_error_the_beginning_is_told(
    server: Server, model: OpenAIModel
) -> None:
    """A proxy may answer with a whole page."""
    server.replies = [Reply(b"<html>" * 10_000, 502)]

    with pytest.raises(ModelError, match="HTTP 502: <html>") as caught:
        await ask(model)

    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[{"message":{"content":7}}]}',
        b'{"choices":[{"message":{"content":"\xff"}}]}',
        completion(None, wire_call("a", "look", "{where:")).body,
        completion(None, wire_call("a", "look", "[1]")).body,
    ],
)
async def test_an_answer_that_is_no_completion_is_an_error_of_the_model(
    server: Server, model: OpenAIModel, body: bytes
) -> None:
    server.replies = [Reply(body)]

    with pytest.raises(ModelError, match="gave an answer that is no chat completion"):
        await ask(model)


async def test_a_server_that_hangs_up_cannot_be_reached(
    server: Server, model: OpenAIModel
) -> None:
    server.replies = [HANG_UP]

    with pytest.raises(ModelError, match="openai:gpt-5-mini cannot be reached: "):
        await ask(model)


@pytest.mark.parametrize("url", ["127.0.0.1/v1", "nowhere://at-all", "http://[oops"])
async def test_an_address_that_is_none_cannot_be_reached(url: str) -> None:
    model = OpenAIModel("gpt-5-mini", key="sk-secret", base_url=url)

    with pytest.raises(ModelError, match="cannot be reached: "):
        await ask(model)

    await model.aclose()


async def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    with trio.socket.socket() as nobody_listens:
        await nobody_listens.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody_listens.getsockname()[1]}"
        model = OpenAIModel("gpt-5-mini", key="sk-secret", base_url=url)

        with pytest.raises(ModelError, match="cannot be reached: ConnectError"):
            await ask(model)

        await model.aclose()


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-secret\nsk-secret-2"])
async def test_no_error_tells_the_key(server: Server, key: str) -> None:
    """Keys come out of files with line ends, and errors go to journals and to other models."""
    model = OpenAIModel("gpt-5-mini", key=key, base_url=server.url)

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert "sk-secret" not in str(caught.value)
    await model.aclose()


async def test_a_server_that_quotes_the_key_is_quoted_without_it(
    server: Server, model: OpenAIModel
) -> None:
    server.replies = [Reply(b"wrong key: sk-secret", 401)]

    with pytest.raises(ModelError, match=r"HTTP 401: wrong key: \*\*\*$"):
        await ask(model)


async def test_no_key_is_found_in_an_error_when_there_is_none(server: Server) -> None:
    """A server of one's own may need none, and its errors are to be read."""
    server.replies = [Reply(b"not now", 500)]
    model = OpenAIModel("gpt-5-mini", key="", base_url=server.url)

    with pytest.raises(ModelError) as caught:
        await ask(model)

    assert "***" not in str(caught.value)
    await model.aclose()


async def test_a_named_model_finds_its_server_and_its_key(server: Server) -> None:
    """Other servers speak the same protocol, and a key comes with the line end of its file."""
    environ = {"OPENAI_API_KEY": "sk-secret\n", "OPENAI_BASE_URL": server.url}
    server.replies = [completion("hi")]
    model = model_named("openai:gpt-5-mini", environ)
    request = ModelRequest(instructions="", transcript=[HELLO], tools=())

    assert (await model.answer(request)).text == "hi"
    assert server.heard[0].key == "Bearer sk-secret"
    await model.aclose()


async def test_a_cancelled_request_hangs_up_and_leaves_the_model_usable(
    server: Server, model: OpenAIModel, nursery: trio.Nursery
) -> None:
    """A provider that still works for nobody would be paid for it."""
    scope = trio.CancelScope()

    async def ask_until_cancelled() -> None:
        with scope:
            await ask(model)

    with trio.fail_after(5):
        nursery.start_soon(ask_until_cancelled)
        await server.wait_asked()
        scope.cancel()
        await server.was_left.wait()
    server.replies = [completion("still here")]

    assert (await ask(model)).text == "still here"
    assert scope.cancelled_caught


async def test_a_connection_is_used_again_until_the_model_is_closed(
    server: Server, model: OpenAIModel
) -> None:
    server.replies = [completion("one"), completion("two")]

    assert [(await ask(model)).text, (await ask(model)).text] == ["one", "two"]
    assert server.connections == 1
    await model.aclose()
    with trio.fail_after(5):
        await server.was_left.wait()


async def test_no_request_waits_for_another(server: Server, model: OpenAIModel) -> None:
    """A parent that waits for its children would hold the connection they need."""
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(110):
                nursery.start_soon(ask, model)
            await server.wait_asked(110)
            nursery.cancel_scope.cancel()

    assert server.connections == 110
