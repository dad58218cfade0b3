"""Services by name: each is asked at its address, with its key, in its version of a protocol."""

import datetime as dt
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anthropic
import attrs
import openai
import pytest
import trio

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    DefinitionError,
    Failure,
    ModelError,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.http.aws_frames import AwsFrames
from orchestrator.agents.models.http.aws_signature import AwsKeys
from orchestrator.agents.models.http.credentials import Credentials, GcloudToken, TokenFunction
from orchestrator.agents.models.provider_file import read_providers
from orchestrator.agents.models.provider_table import PROVIDERS, WireProtocol
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.registry import model_named
from tests.fake_provider import FakeProvider, Raw, Say, aws_frame, encode, open_provider

pytestmark = [
    pytest.mark.realtime,
    # The official clients leave their streams to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KEY = "sk-0123456789abcdef"
HELLO = [UserMessage("hello")]
CHAT = [
    name
    for name, provider in PROVIDERS.items()
    if provider.protocol is WireProtocol.CHAT and name.partition("-")[0] != "vertex"
]
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_REGION": "eu-west-1",
}
GOOGLE = {
    "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.token",
    "GOOGLE_CLOUD_PROJECT": "lab",
    "GOOGLE_CLOUD_LOCATION": "europe-west1",
}


@tool
async def look(at: str = "") -> str:
    """Look at something."""
    await trio.lowlevel.checkpoint()
    return at


LOOK = ToolCall("look", {"at": "x"}, id=CallId("call_1"))


def environ(name: str, server: FakeProvider) -> dict[str, str]:
    provider = PROVIDERS[name]
    return {provider.key_variable: KEY, provider.base_url_variable: f"{server.url}/at-{name}/v1"}


async def ask(
    name: str, variables: dict[str, str], transcript: Any = HELLO, **more: Any
) -> AssistantMessage:
    model = model_named(name, variables)
    assert model.name == name
    request = {"instructions": "", "transcript": transcript, "tools": (), **more}
    try:
        return await model.answer(ModelRequest(**request))
    finally:
        await model.aclose()


@pytest.mark.parametrize("name", CHAT)
async def test_a_service_that_speaks_chat_completions_is_asked_by_its_name(name: str) -> None:
    transcript = [*HELLO, AssistantMessage("", (LOOK,)), ToolMessage(LOOK.id, "dark")]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    settings = ModelSettings(temperature=0, reasoning_effort="high", stop="END")
    async with open_provider(Say(text='{"a": "so"}', read=7, wrote=3)) as server:
        answer = await ask(
            f"{name}:m",
            environ(name, server),
            transcript,
            tools=[look],
            output=schema,
            settings=settings,
            max_output=99,
        )

    (heard,) = server.heard
    assert heard.path == f"/at-{name}/v1/chat/completions"
    header = "api-key" if name == "azure" else "authorization"
    assert KEY in heard.headers[header]
    assert (answer.text, answer.usage.tokens) == ('{"a": "so"}', 10)


@pytest.mark.parametrize("name", CHAT)
async def test_the_official_client_of_openai_finds_the_same_service_there(name: str) -> None:
    async with open_provider(Say(text="so", read=7, wrote=3)) as server:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/at-{name}/v1", api_key=KEY, max_retries=0
        ) as client:
            answer = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hello"}]
            )

    assert answer.choices[0].message.content == "so"


async def test_azure_is_asked_at_its_endpoint_by_both_protocols() -> None:
    async with open_provider(Say(text="so")) as server:
        variables = {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": f"{server.url}/"}
        for name in ("azure:gpt", "azure-responses:gpt"):
            assert (await ask(name, variables, max_output=99)).text == "so"

    chat, responses = server.heard
    assert chat.path == "/openai/v1/chat/completions"
    assert responses.path == "/openai/v1/responses"
    assert chat.headers["api-key"] == KEY
    assert chat.body["max_completion_tokens"] == 99


async def test_bedrock_gets_a_signed_request_and_streams_in_frames() -> None:
    model = "eu.anthropic.claude-opus-4-5-v1:0"
    say = Say(thinking="Well", text="a few words", calls=(LOOK,), read=20, wrote=5)
    events: list[Any] = []
    async with open_provider(say) as server:
        url = {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
        answer = await ask(
            f"bedrock:{model}",
            {**AWS, **url, "AWS_SESSION_TOKEN": "tok/en+="},
            tools=[look],
            tell=events.append,
        )

    (heard,) = server.heard
    assert heard.path == ("/model/eu.anthropic.claude-opus-4-5-v1%3A0/invoke-with-response-stream")
    assert heard.headers["x-amz-security-token"] == "tok/en+="
    assert "anthropic-version" not in heard.headers
    assert (answer.text, answer.calls) == ("a few words", (LOOK,))
    assert "".join(it.text for it in events if isinstance(it, ReasoningDelta)) == "Well"


async def test_bedrock_takes_a_bearer_key() -> None:
    async with open_provider(Say(text="so")) as server:
        await ask(
            "bedrock:m",
            {"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url},
        )

    assert server.heard[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("url", "token", "signature"),
    [
        (
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/"
            "anthropic.claude-opus-5-v1%3A0/invoke-with-response-stream",
            "",
            "333a0d8f8eace8b500bad19ec295f62a07ea18a000e2146089a31f28f81a3b64",
        ),
        (
            "http://127.0.0.1:8123/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3A"
            "inference-profile%2Fx/invoke-with-response-stream",
            "tok/en+=",
            "0bc297e94d4af62f98c9a1766ea94fe28df2c7f7d1c22729b1c8f68d5e8b80f6",
        ),
    ],
)
def test_a_signature_equals_the_one_of_botocore(url: str, token: str, signature: str) -> None:
    """The signatures were made with botocore 1.44.0, for the same request at the same time."""
    keys = AwsKeys(
        access_key="AKIDEXAMPLE",
        secret_key=AWS["AWS_SECRET_ACCESS_KEY"],
        session_token=token,
        region="eu-west-1",
        clock=lambda: dt.datetime(2026, 11, 17, 12, tzinfo=dt.UTC),
    )

    headers = keys.signed_headers("POST", url, b'{"a": 1}')

    assert headers["x-amz-date"] == "20261117T120000Z"
    assert headers["authorization"].endswith(f"Signature={signature}")
    assert AWS["AWS_SECRET_ACCESS_KEY"] not in repr(keys)


FRAME = aws_frame(b'{"type":"ping"}')


def test_frames_are_read_from_pieces_of_any_size() -> None:
    for size in (1, 7, len(FRAME), 3 * len(FRAME)):
        data, frames = FRAME * 3, AwsFrames()
        events = [
            event
            for start in range(0, len(data), size)
            for event in frames.feed(data[start : start + size])
        ]
        assert events == [b'{"type":"ping"}'] * 3
        assert frames.buffered == 0


@pytest.mark.parametrize("at", [0, 9, 20, len(FRAME) - 1])
async def test_a_damaged_frame_is_malformed(at: int) -> None:
    damaged = bytearray(FRAME)
    damaged[at] ^= 0xFF
    headers = {"content-type": "application/vnd.amazon.eventstream"}
    async with open_provider(Raw(bytes(damaged), headers=headers)) as server:
        with pytest.raises(ModelError) as caught:
            await ask("bedrock:m", {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url})

    assert caught.value.kind in {Failure.MALFORMED, Failure.CONNECTION}


async def test_an_exception_in_a_stream_of_aws_is_a_failure() -> None:
    frame = aws_frame(
        b"{}", **{":message-type": "exception", ":exception-type": "throttlingException"}
    )
    headers = {"content-type": "application/vnd.amazon.eventstream"}
    async with open_provider(Raw(frame, headers=headers)) as server:
        with pytest.raises(ModelError, match="throttlingException") as caught:
            await ask("bedrock:m", {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url})

    assert caught.value.kind is Failure.RATE_LIMIT


async def test_vertex_is_asked_with_a_token() -> None:
    async with open_provider(Say(text="so", read=20, wrote=5)) as server:
        variables = {**GOOGLE, "VERTEX_BASE_URL": server.url}
        answer = await ask("vertex:claude-opus-4-5@20251101", variables)
        variables = {**GOOGLE, "VERTEX_BASE_URL": f"{server.url}/endpoints/openapi"}
        other = await ask("vertex-openai:google/gemini-3-flash", variables)

    claude, gemini = server.heard
    assert claude.path.endswith(
        "/publishers/anthropic/models/claude-opus-4-5%4020251101:streamRawPredict"
    )
    assert gemini.path == "/endpoints/openapi/chat/completions"
    assert claude.headers["authorization"] == "Bearer ya29.token"
    assert (answer.text, other.text) == ("so", "so")


async def test_the_official_client_of_vertex_reads_the_answers_of_our_server() -> None:
    async with open_provider(Say(text="so", read=20, wrote=5)) as server:
        async with anthropic.AsyncAnthropicVertex(
            base_url=server.url,
            access_token="ya29.token",
            project_id="lab",
            region="europe-west1",
            max_retries=0,
        ) as client:
            async with client.messages.stream(
                model="claude-opus-4-5@20251101",
                max_tokens=99,
                messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            ) as stream:
                assert await stream.get_final_text() == "so"


@pytest.mark.parametrize(
    ("name", "variables", "url"),
    [
        (
            "vertex",
            GOOGLE,
            "https://europe-west1-aiplatform.googleapis.com/v1/projects/lab/locations/europe-west1",
        ),
        (
            "vertex-openai",
            {**GOOGLE, "GOOGLE_CLOUD_LOCATION": "global"},
            "https://aiplatform.googleapis.com/v1/projects/lab/locations/global/endpoints/openapi",
        ),
        ("bedrock", AWS, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        (
            "azure",
            {"AZURE_OPENAI_ENDPOINT": "https://lab.openai.azure.com/"},
            "https://lab.openai.azure.com/openai/v1",
        ),
    ],
)
def test_the_base_url_is_built_from_environment_variables(
    name: str, variables: dict[str, str], url: str
) -> None:
    assert PROVIDERS[name].base_url(f"{name}:m", variables) == url


@pytest.mark.parametrize("name", [it for it in PROVIDERS if it != "ollama"])
def test_a_missing_key_or_address_names_its_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # no gcloud
    provider = PROVIDERS[name]
    parts = {names[0]: "https://x" for names in provider.address.values()}

    with pytest.raises(DefinitionError) as caught:
        model_named(f"{name}:m", parts)
    assert provider.key_variable in str(caught.value)
    for variable in parts:
        with pytest.raises(DefinitionError, match=variable):
            model_named(f"{name}:m", {**parts, variable: ""})


async def test_ollama_needs_no_key() -> None:
    model = model_named("ollama:llama3.2", {})

    assert model.name == "ollama:llama3.2"
    await model.aclose()


async def test_a_token_of_ones_own_is_asked_for_before_each_request() -> None:
    tokens = iter(["first", "second"])
    service = attrs.evolve(
        PROVIDERS["vertex"], token=lambda: next(tokens), address={}, default_url="x"
    )
    async with open_provider(Say(text="so")) as server:
        model = model_named(
            "vertex:m", {"VERTEX_BASE_URL": server.url}, providers={"vertex": service}
        )
        for _ in range(2):
            request = ModelRequest(instructions="", transcript=HELLO, tools=())
            await model.answer(request)
        await model.aclose()

    assert [heard.headers["authorization"] for heard in server.heard] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_gcloud_is_asked_once_for_many_requests(tmp_path: Path) -> None:
    script = tmp_path / "gcloud.py"
    script.write_text(
        "import pathlib\nlog = pathlib.Path(__file__).with_suffix('.log')\n"
        "log.open('a').write('asked ')\nprint('ya29.made')\n"
    )
    source = GcloudToken((sys.executable, str(script)))

    headers = [await source.headers("", b"") for _ in range(3)]

    assert headers == [{"authorization": "Bearer ya29.made"}] * 3
    assert script.with_suffix(".log").read_text() == "asked "


@pytest.mark.parametrize(
    "command", [("no-such-program",), (sys.executable, "-c", "raise SystemExit(1)")]
)
async def test_a_token_that_cannot_be_had_is_a_failure_of_the_key(command: tuple[str, ...]) -> None:
    from orchestrator.agents.models.http.answer_errors import UnusableAnswerError

    with pytest.raises(UnusableAnswerError) as caught:
        await GcloudToken(command).headers("", b"")

    assert caught.value.kind is Failure.AUTH


TOKEN = "plain-opaque/token+8172635"
SESSION = "IQoJb3JpZ2luX2VjEF/" * 100


def texts_of(error: BaseException) -> str:
    """Return all that an error and those it comes from say, in sentences and as values."""
    texts: list[str] = []
    link: BaseException | None = error
    while link is not None:
        texts += str(link), repr(link)
        link = link.__cause__ or link.__context__
    return "\n".join(texts)


async def failure(server: FakeProvider, credentials: Credentials, **more: Any) -> ModelError:
    service = attrs.evolve(PROVIDERS["openai"], **more)
    model = OpenAIModel("m", base_url=server.url, service=service, credentials=credentials)
    with pytest.raises(ModelError) as caught:
        await model.answer(ModelRequest(instructions="", transcript=HELLO, tools=()))
    await model.aclose()
    return caught.value


@pytest.mark.parametrize("before", [0, 440, 447])
@pytest.mark.parametrize("quoted", [TOKEN, TOKEN.replace("/", r"\/"), quote(TOKEN, safe="")])
async def test_a_token_quoted_by_a_server_is_redacted(quoted: str, before: int) -> None:
    """Also where the quote is cut in the midst of the token."""
    body = f"{'x' * before} invalid: Bearer {quoted}"
    async with open_provider(Raw(body.encode(), 401)) as server:
        error = await failure(server, TokenFunction(lambda: TOKEN))

    assert "invalid: Bearer *" in str(error)
    assert "plain" not in texts_of(error)


@pytest.mark.parametrize("sign", ["\n", "\0", "\\\0", "'\"\n", "\u00e4", "\n\u00e4"])
async def test_a_token_that_no_header_can_have_is_in_no_error(sign: str) -> None:
    async with open_provider() as server:
        error = await failure(server, TokenFunction(lambda: f"supersecret{sign}more-of-it"))

    assert "supersecret" not in texts_of(error)
    assert "more-of-it" not in texts_of(error)


async def test_a_token_of_gcloud_is_in_no_error() -> None:
    source = GcloudToken((sys.executable, "-c", f"print({TOKEN!r})"))
    async with open_provider(Raw(f"invalid: {TOKEN}".encode(), 401)) as server:
        error = await failure(server, source)

    assert "invalid: ***" in str(error)
    assert "opaque" not in texts_of(error)


@pytest.mark.parametrize("body", ["{session}", "{key}", "{half}"])
async def test_keys_of_aws_are_in_no_error(body: str) -> None:
    """The start of a session token is redacted too if the error is cut inside it."""
    keys = AwsKeys(
        access_key="OWNKEYEXAMPLE",
        secret_key=AWS["AWS_SECRET_ACCESS_KEY"],
        session_token=SESSION,
        region="eu-west-1",
    )
    text = body.format(session=SESSION, key=keys.access_key, half=SESSION[:1_000])
    answer = f"x-amz-date is late for {text}"
    async with open_provider(Raw(answer.encode(), 403)) as server:
        error = await failure(server, keys)

    assert "x-amz-date is late for ***" in str(error)
    assert "IQoJb3" not in texts_of(error)
    assert "OWNKEY" not in texts_of(error)


async def test_secret_headers_of_a_service_are_in_no_error() -> None:
    headers = {
        "x-lab-token": TOKEN,
        "x-team": "the-red-team",
        "cookie": "session=cookie-of-a-session; theme=dark-and-blue",
    }
    body = f"{TOKEN}, cookie-of-a-session and the-red-team"
    async with open_provider(Raw(body.encode(), 403)) as server:
        error = await failure(server, TokenFunction(lambda: KEY), headers=headers)

    assert "***, *** and the-red-team" in str(error)
    assert TOKEN not in texts_of(error)


async def test_openrouter_reports_the_cost_of_a_call() -> None:
    chunk = {
        "choices": [{"delta": {"content": "so"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.00125},
    }
    body = b"data: " + encode(chunk) + b"\n\ndata: [DONE]\n\n"
    headers = {"content-type": "text/event-stream"}
    async with open_provider(Raw(body, headers=headers)) as server:
        billed = await ask("openrouter:m", environ("openrouter", server))
        other = await ask("together:m", environ("together", server))

    assert (billed.usage.micro_usd, billed.usage.unpriced) == (1_250, 0)
    assert (other.usage.micro_usd, other.usage.unpriced) == (0, 1)


async def test_mistral_thinks_in_a_list_of_pieces() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Well"}]},
        {"type": "text", "text": "so"},
    ]
    chunk = {"choices": [{"delta": {"content": content}, "finish_reason": "stop"}]}
    body = b"data: " + encode(chunk) + b"\n\ndata: [DONE]\n\n"
    events: list[Any] = []
    async with open_provider(Raw(body, headers={"content-type": "text/event-stream"})) as server:
        answer = await ask("mistral:m", environ("mistral", server), tell=events.append)

    assert answer.text == "so"
    assert events[0] == ReasoningDelta("Well")


@pytest.mark.parametrize(
    ("effort", "sent"),
    [
        ("none", {"thinking": {"type": "disabled"}}),
        ("high", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
    ],
)
async def test_deepseek_has_a_switch_for_its_reasoning(effort: Any, sent: Any) -> None:
    async with open_provider(Say(text="so")) as server:
        settings = ModelSettings(reasoning_effort=effort)
        await ask("deepseek:m", environ("deepseek", server), settings=settings)

    body = server.heard[0].body
    assert {key: body[key] for key in body if key in sent} == sent


FILE = """
[lab]
url = "{url}/lab/v1"
key_variable = "LAB_KEY"
headers = {{ "x-team" = "red" }}
cannot = ["seed"]

[claude-at-lab]
like = "anthropic"
url = "{url}"

[fast]
like = "mistral"
url = "{url}/at-mistral/v1"
key_variable = "LAB_KEY"
"""


async def test_a_file_names_services_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    async with open_provider(Say(text="so")) as server:
        file.write_text(FILE.format(url=server.url))
        providers = read_providers(file)
        for name in ("lab:m", "claude-at-lab:m", "fast:m"):
            model = model_named(name, {"LAB_KEY": KEY}, providers=providers)
            assert model.name == name
            request = ModelRequest(instructions="", transcript=HELLO, tools=())
            assert (await model.answer(request)).text == "so"
            await model.aclose()

    lab, claude, fast = server.heard
    assert lab.path == "/lab/v1/chat/completions"
    assert lab.headers["x-team"] == "red"
    assert lab.headers["authorization"] == f"Bearer {KEY}"
    assert claude.path == "/v1/messages"
    assert "stream_options" not in fast.body
    assert providers["lab"].settings.problem_with(ModelSettings(seed=1))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[lab]\nurl = nothing", "cannot be read: .*line 2"),
        ("lab = 1", "'lab' is in no table: write it below the name of a service"),
        ("[lab]", r"\[lab\]: it has no url; write the address"),
        ("[lab]\nurl = 1", r"\[lab\]: url is a text, in quotes"),
        ('[lab]\nurl = "ftp://x"', "write the address of a server"),
        ('[lab]\nurl = "https://x"\nkey = "sk-1"', r"\[lab\]: it has 'key', and keys are never"),
        ('[lab]\nulr = "https://x"', "a service has no 'ulr'; did you mean 'url'?"),
        ('[lab]\nurl = "https://x"\nprotocol = "soap"', "protocol is 'soap'; there"),
        ('[lab]\nurl = "https://x"\nlike = "nothing"', "like is 'nothing'"),
        ('[lab]\nurl = "https://x"\nlike = "opnai"', "did you mean 'openai'?"),
        ('[lab]\nurl = "https://x"\nheaders = {a = 1}', "headers is not written like"),
        ('[lab]\nurl = "https://x"\ncannot = "seed"', "cannot is not written like"),
        ('[lab]\nurl = "https://x"\nprice = 5', "price is not written like this"),
        ('[lab]\nurl = "https://x"\nprice = {input = 1}', "price is not written like"),
        ('[lab]\nurl = "https://x"\nprice = {input = -1, output = 1}', "price is not"),
        ('[lab]\nurl = "https://x"\ncannot = ["sing"]', "'sing', which is no setting"),
        ('["a:b"]\nurl = "https://x"', "cannot be the name of a service"),
    ],
)
def test_an_unusable_file_is_reported_with_its_path_and_reason(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)

    with pytest.raises(DefinitionError, match=problem) as caught:
        read_providers(file)

    assert str(file) in str(caught.value)


def test_a_file_need_not_be_there(tmp_path: Path) -> None:
    assert read_providers(tmp_path / "models.toml") == {}
