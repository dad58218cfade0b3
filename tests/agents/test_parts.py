"""Images and files go to every provider in its own words, or are refused before they are sent."""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    DefinitionError,
    Failure,
    ModelError,
    ModelRequest,
    ScriptedModel,
    UserMessage,
)
from orchestrator.agents.messages import Part
from orchestrator.agents.models.http.wire_transcript import NOTHING
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.local_prompt import ChatMessage, chat_messages
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.token_estimate import TOKENS_PER_IMAGE, estimated_tokens
from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel
from tests.fake_provider import FakeProvider, Say, open_provider

PNG = Part("image/png", data=b"\x89PNG\xff")
PNG_BASE64 = base64.b64encode(PNG.data).decode()
FAR_PNG = Part("image/png", url="https://example.org/cat.png")
PDF = Part("application/pdf", data=b"%PDF-1.7", name="report.pdf")
PDF_BASE64 = base64.b64encode(PDF.data).decode()
FAR_PDF = Part("application/pdf", url="https://example.org/report.pdf")
NOTES = Part("text/markdown", data="\ufeff# Größe".encode(), name="notes.md")
DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
DOCX = Part(DOCX_TYPE, data=b"PK", name="letter.docx")
DOCX_BASE64 = base64.b64encode(DOCX.data).decode()
SOUND = Part("audio/wav", data=b"RIFF", name="song.wav")
TIFF = Part("image/tiff", data=b"II*")
NO_UTF8 = Part("text/plain", data=b"\xff\xfe")

HttpModel = OpenAIModel | ResponsesModel | AnthropicModel
Build = Callable[[str], HttpModel]


def openai(url: str) -> HttpModel:
    return OpenAIModel("m", key="", base_url=f"{url}/v1")


def responses(url: str) -> HttpModel:
    return ResponsesModel("m", key="", base_url=f"{url}/v1")


def anthropic(url: str) -> HttpModel:
    return AnthropicModel("m", key="", base_url=url)


@pytest.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with open_provider(Say(text="seen")) as provider:
        yield provider


def request(*parts: Part, text: str = "what is this?") -> ModelRequest:
    return ModelRequest(instructions="", transcript=[UserMessage(text, parts)], tools=())


async def ask(build: Build, server: FakeProvider, request: ModelRequest) -> AssistantMessage:
    async with aclosing(build(server.url)) as model:
        return await model.answer(request)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: Part("png", data=b"x"), "media type 'png'"),
        (lambda: Part("image/PNG", data=b"x"), "small letters"),
        (lambda: Part("text/plain; charset=utf-8", data=b"x"), "without parameters"),
        (lambda: Part(None, data=b"x"), "media type None"),  # type: ignore[arg-type]
        (lambda: Part("image/png"), "either data, which cannot be empty, or a url"),
        (
            lambda: Part("image/png", data=b"x", url="https://example.org"),
            "the file .image/png. must have either data",
        ),
        (lambda: Part("text/plain", data="x"), "bytes, not str"),  # type: ignore[arg-type]
        (lambda: Part("image/png", data=bytearray(b"x")), "bytes, not bytearray"),  # type: ignore[arg-type]
        (lambda: Part("image/png", url="file:///etc/passwd"), "must begin with https"),
        (lambda: Part("image/png", url="data:image/png;base64,"), "bytes are given as"),
        (lambda: Part("image/png", url="https://example.org/a b"), "without blanks"),
        (lambda: Part("image/png", url=7), "is 7"),  # type: ignore[arg-type]
        (lambda: Part("image/png", data=b"x", name=7), "7 must be text"),  # type: ignore[arg-type]
        (lambda: UserMessage("x", [PNG]), "a tuple of Part"),  # type: ignore[arg-type]
        (lambda: UserMessage("x", ("cat.png",)), "a tuple of Part"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_part_is_refused_with_a_sentence(
    wrong: Callable[[], object], problem: str
) -> None:
    with pytest.raises(DefinitionError, match=problem):
        wrong()


def test_a_file_name_that_is_not_text_is_repaired() -> None:
    assert Part("image/png", data=b"x", name="caf\udce9").name == "caf?"


def test_a_part_is_shown_without_its_bytes() -> None:
    part = Part("image/png", data=b"x" * 5_000_000)

    assert repr(part) == ("Part(media_type='image/png', data=<5000000 bytes>, url='', name='')")


@pytest.mark.parametrize("part", [PNG, FAR_PNG, NOTES, DOCX])
def test_a_part_survives_being_stored(part: Part) -> None:
    message = UserMessage("look", (part,))

    stored = msgspec.json.encode(message)
    read = msgspec.json.decode(stored, type=UserMessage)

    assert read == message
    assert read.id == message.id


def test_a_damaged_part_is_not_read() -> None:
    with pytest.raises(msgspec.ValidationError, match="either data"):
        msgspec.json.decode(b'{"media_type":"image/png"}', type=Part)


CHAT_NOTES = "This is the file 'notes.md' (text/markdown):\n\n# Größe\n\n"


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("build", "part", "sent"),
    [
        (
            openai,
            PNG,
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_BASE64}"}},
        ),
        (openai, FAR_PNG, {"type": "image_url", "image_url": {"url": FAR_PNG.url}}),
        (
            openai,
            PDF,
            {
                "type": "file",
                "file": {
                    "filename": "report.pdf",
                    "file_data": f"data:application/pdf;base64,{PDF_BASE64}",
                },
            },
        ),
        (
            openai,
            replace(PDF, name=""),
            {
                "type": "file",
                "file": {
                    "filename": "file.pdf",
                    "file_data": f"data:application/pdf;base64,{PDF_BASE64}",
                },
            },
        ),
        (openai, NOTES, {"type": "text", "text": CHAT_NOTES}),
        (
            responses,
            PNG,
            {
                "type": "input_image",
                "image_url": f"data:image/png;base64,{PNG_BASE64}",
                "detail": "auto",
            },
        ),
        (responses, FAR_PNG, {"type": "input_image", "image_url": FAR_PNG.url, "detail": "auto"}),
        (
            responses,
            PDF,
            {
                "type": "input_file",
                "filename": "report.pdf",
                "file_data": f"data:application/pdf;base64,{PDF_BASE64}",
            },
        ),
        (
            responses,
            replace(DOCX, name=""),
            {
                "type": "input_file",
                "filename": "file.docx",
                "file_data": f"data:{DOCX_TYPE};base64,{DOCX_BASE64}",
            },
        ),
        (responses, FAR_PDF, {"type": "input_file", "file_url": FAR_PDF.url}),
        (responses, NOTES, {"type": "input_text", "text": CHAT_NOTES}),
        (
            anthropic,
            PNG,
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64},
            },
        ),
        (anthropic, FAR_PNG, {"type": "image", "source": {"type": "url", "url": FAR_PNG.url}}),
        (
            anthropic,
            PDF,
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_BASE64},
                "title": "report.pdf",
            },
        ),
        (anthropic, FAR_PDF, {"type": "document", "source": {"type": "url", "url": FAR_PDF.url}}),
        (
            anthropic,
            NOTES,
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "# Größe"},
                "title": "notes.md",
            },
        ),
    ],
)
async def test_a_part_is_sent_in_the_form_of_the_protocol(
    server: FakeProvider, build: Build, part: Part, sent: dict[str, Any]
) -> None:
    """The fake server refuses invalid requests like the real one."""
    answer = await ask(build, server, request(part))

    assert answer.text == "seen"
    (received,) = server.heard
    (message,) = received.body.get("messages") or received.body["input"]
    shown, output = message["content"]
    assert shown == sent
    assert output == {
        "type": "input_text" if build is responses else "text",
        "text": "what is this?",
    }


@pytest.mark.realtime
@pytest.mark.parametrize("build", [openai, responses, anthropic])
async def test_a_message_may_be_parts_alone(server: FakeProvider, build: Build) -> None:
    await ask(build, server, request(PNG, PDF, text=" \n"))

    (received,) = server.heard
    (message,) = received.body.get("messages") or received.body["input"]
    assert len(message["content"]) == 2


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("build", "part", "problem"),
    [
        (openai, SOUND, "the file 'song.wav' .audio/wav. cannot be sent: chat compl"),
        (openai, TIFF, "take PNG, JPEG, GIF and WebP images"),
        (openai, DOCX, "PDFs and texts"),
        (openai, FAR_PDF, "fetch images only; give its bytes as data"),
        (openai, NO_UTF8, "its text is not UTF-8"),
        (responses, SOUND, "responses take PNG"),
        (responses, TIFF, "office documents and texts"),
        (responses, NO_UTF8, "its text is not UTF-8"),
        (anthropic, SOUND, "messages take PNG"),
        (anthropic, TIFF, "PDFs and texts"),
        (anthropic, DOCX, "PDFs and texts"),
        (anthropic, NO_UTF8, "its text is not UTF-8"),
        (
            anthropic,
            Part("text/plain", url="https://example.org/a.txt"),
            "fetch images and PDFs only; give its bytes as data",
        ),
        (anthropic, Part("image/png", url="http://localhost/a.png"), "from https:// only"),
    ],
)
async def test_a_part_that_a_protocol_lacks_is_refused_before_sending(
    server: FakeProvider, build: Build, part: Part, problem: str
) -> None:
    with pytest.raises(ModelError, match=problem) as failed:
        await ask(build, server, request(PNG, part))

    assert failed.value.kind is Failure.BAD_REQUEST
    assert not server.heard


@pytest.mark.realtime
@pytest.mark.parametrize("build", [openai, anthropic])
async def test_a_file_without_text_is_sent_as_a_note(server: FakeProvider, build: Build) -> None:
    await ask(build, server, request(Part("text/plain", data=b" \n", name=" ")))

    (received,) = server.heard
    shown = received.body["messages"][0]["content"][0]
    assert "title" not in shown
    assert NOTHING in (shown.get("text") or shown["source"]["data"])


def test_a_local_model_is_told_about_files_that_it_cannot_read() -> None:
    assert chat_messages(request(PDF, PNG)) == [
        ChatMessage(
            "user",
            "what is this?"
            "\n\n[Here the file 'report.pdf' (application/pdf) is attached."
            " You cannot read it.]"
            "\n\n[Here the file (image/png) is attached. You cannot read it.]",
        )
    ]


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (PNG, TOKENS_PER_IMAGE),
        (FAR_PDF, TOKENS_PER_IMAGE),
        (Part("image/png", data=b"x" * 1_000_000), TOKENS_PER_IMAGE),
        (Part("application/pdf", data=b"x" * 1_000_000), 50_000),
        (Part("text/plain", data=b"x" * 4_000), 1_000),
        (Part("text/plain", url="https://example.org/a.txt"), TOKENS_PER_IMAGE),
    ],
)
def test_a_limiter_knows_that_a_part_is_read_too(part: Part, tokens: int) -> None:
    assert estimated_tokens(request(part)) - estimated_tokens(request()) == tokens


@pytest.mark.realtime
async def test_a_cassette_knows_a_file_by_its_fingerprint(tmp_path: Path) -> None:
    """A secret cannot be taken out of a file, so the file stays out of the cassette."""
    secret = Part("text/plain", data=b"password: swordfish", name="a.txt")
    other = replace(secret, data=b"password: salmon")
    file = tmp_path / "one.jsonl"
    await RecordingModel(ScriptedModel(["42"]), file).answer(request(secret, FAR_PNG))

    replay = ReplayModel(file)

    with pytest.raises(ModelError, match="this request was not recorded"):
        await replay.answer(request(other, FAR_PNG))
    assert (await replay.answer(request(secret, FAR_PNG))).text == "42"
    text = await trio.Path(file).read_text()
    assert base64.b64encode(secret.data).decode() not in text
    assert '"data": "19 bytes, sha256 ' in text
    assert FAR_PNG.url in text
