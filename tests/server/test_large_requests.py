"""Large requests: what takes long of them is not done in the event loop."""

import base64
import json
import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.cli.retention import size_on_disk
from orchestrator.delegation import SessionId
from orchestrator.products.server.transport.json_body import (
    LARGE,
    MOST_MARKS,
    decoded,
    has_too_many_marks,
)
from tests.kit import worker
from tests.server.kit import serving
from tests.server.runs_kit import problem

pytestmark = pytest.mark.realtime

SECRET = "quite-a-secret"
SEARCH = "Redactor._redact_once"
FEW = 100
"""More searches than facts of ids and short words make."""


@contextmanager
def searched_texts() -> Generator[list[str]]:
    """List the texts that are searched in this thread, which is that of the event loop."""
    texts: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_qualname == SEARCH:
            texts.append(frame.f_locals["text"])

    sys.setprofile(note)
    try:
        yield texts
    finally:
        sys.setprofile(None)


async def test_many_short_messages_are_searched_beside_the_event_loop() -> None:
    messages = [{"role": "user", "content": f"{SECRET} {n}"} for n in range(1_000)]
    async with serving(worker(), environ={"API_TOKEN": SECRET}) as served:
        with searched_texts() as texts:
            answer = await served.http.post(
                "/v1/chat/completions", json={"model": "worker", "messages": messages}
            )
        assert answer.status_code == 200
        ledger = served.orchestrator.read.records
        transcript = ledger.sessions[SessionId(answer.headers["x-run-id"])].root
        said = [getattr(it, "text", "") for it in transcript.transcript]
    assert len(texts) < FEW
    assert sum(" 999" in it or " 1" in it for it in said) > FEW
    assert not any(SECRET in it for it in said)


async def test_many_files_of_a_message_are_searched_beside_the_event_loop() -> None:
    part = {
        "type": "data",
        "media_type": "text/plain",
        "data": base64.b64encode(SECRET.encode()).decode(),
    }
    async with serving(worker(), environ={"API_TOKEN": SECRET}) as served:
        opened = await served.http.post("/v1/sessions", json={"model": "worker"})
        session = opened.json()["id"]
        with searched_texts() as texts:
            told = await served.http.post(
                f"/v1/sessions/{session}/messages", json={"text": "go", "parts": [part] * 500}
            )
        assert told.status_code == 202
        record = served.orchestrator.read.records.sessions[SessionId(session)]
        mail = [*record.mail.values(), *record.root.transcript]
        parts = [part for it in mail for part in getattr(it, "parts", ())]
    assert len(texts) < FEW
    assert len(parts) == 500
    assert not any(SECRET.encode() in part.data for part in parts)


async def test_the_long_schema_of_a_tool_is_searched_beside_the_event_loop() -> None:
    properties = {f"password_{n}": {"type": "string"} for n in range(1_000)}
    tool = {
        "type": "function",
        "name": "look",
        "parameters": {"type": "object", "properties": properties},
    }
    async with serving(worker()) as served:
        with searched_texts() as texts:
            answer = await served.http.post(
                "/v1/responses", json={"model": "worker", "input": "go", "tools": [tool]}
            )
        assert answer.status_code == 200
        assert answer.json()["tools"][0]["parameters"]["properties"] == properties
    assert max(map(len, texts), default=0) < len(str(properties)) // 2


async def test_a_large_body_is_decoded_beside_the_event_loop() -> None:
    in_loop: list[bool] = []

    class Body(msgspec.Struct):
        text: str

        def __post_init__(self) -> None:
            in_loop.append(trio.lowlevel.in_trio_task())

    for size in (1, LARGE):
        await decoded(json.dumps({"text": "x" * size}).encode(), Body)

    assert in_loop == [True, False]


async def test_a_body_of_very_many_values_is_refused() -> None:
    metadata = {str(n): "" for n in range(MOST_MARKS // 3)}
    body = {"model": "worker", "input": "go", "metadata": metadata}
    async with serving(worker()) as served:
        refused = await served.http.post("/v1/runs", json=body)
    assert refused.status_code == 413
    assert problem(refused)["code"] == "too_many_values"


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("[]", 1),
        ('{"a": 1, "b": [2, 3]}', 6),
        (json.dumps('[{,"\\' * 1_000), 1),
        (json.dumps("\\" * 5_001 + "x" * 300_000), 1),
        ('"never ends \\"', 1),
        ("1" * 2_500_000, 0),
    ],
)
def test_marks_inside_strings_are_not_counted(text: str, marks: int) -> None:
    raw = text.encode()
    assert not has_too_many_marks(raw, marks)
    assert has_too_many_marks(b"[" + raw, marks)


async def test_an_image_in_many_chats_is_stored_once(tmp_path: Path) -> None:
    image = random.Random(7).randbytes(300_000)
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    content: Any = [{"type": "image_url", "image_url": {"url": url}}]
    part: Any = {"type": "input_image", "image_url": url}
    path = tmp_path / "journal.db"
    async with serving(Agent("a", model=ScriptedModel.always("!")), journal=path) as it:
        for number in range(10):
            content[1:] = [{"type": "text", "text": f"What is it? {number}"}]
            await it.openai.chat.completions.create(
                model="a", messages=[{"role": "user", "content": content}]
            )
        first = await it.openai.responses.create(
            model="a", input=[{"role": "user", "content": [part]}]
        )
        await it.openai.responses.create(model="a", input="and now?", previous_response_id=first.id)

    assert size_on_disk(path) < 1.6 * len(url)
