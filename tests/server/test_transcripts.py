"""A transcript contains files, reasoning and incidents besides texts."""

import base64
from typing import Any

import httpx2
import pytest

from orchestrator.agents import Agent, Failure, ModelError, Part, ScriptedModel, ToolCall, tool
from orchestrator.agents.models.wrappers.compaction import with_compaction
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.retry import with_retries
from tests.server.kit import Served, serving
from tests.server.runs_kit import ended, started
from tests.server.test_reasoning_items import thinker
from tests.server.test_sessions import inbox, opened

pytestmark = pytest.mark.realtime

PNG = b"\x89PNG\r\n\x1a\n and so on"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


def named(name: str, step: Any) -> ScriptedModel:
    model = ScriptedModel.always(step)
    model.name = name
    return model


async def said(served: Served, task: str, query: str = "") -> Any:
    return (await served.http.get(f"/v1/tasks/{task}/transcript{query}")).json()


async def part(served: Served, task: str, message: str, number: object) -> httpx2.Response:
    return await served.http.get(f"/v1/tasks/{task}/messages/{message}/parts/{number}")


async def test_images_are_shown_and_all_other_files_are_saved() -> None:
    """No file of a stranger is a document with the rights of the console's page."""
    files = [("image/png", "a.png", PNG), ("image/svg+xml", 'x";\r\ny.svg', SVG)]
    files.append(("text/html", "../../é.html", b"<script>alert(1)</script>"))
    async with serving(Agent("a", model=ScriptedModel.always("nice"))) as served:
        session = await opened(served, "a")
        sent = [
            {
                "type": "data",
                "media_type": kind,
                "name": name,
                "data": base64.b64encode(data).decode(),
            }
            for kind, name, data in files
        ]
        path = f"/v1/sessions/{session}/messages"
        told = await served.http.post(path, json={"text": "look", "parts": sent})
        message = told.json()["message"]
        await inbox(served, session)
        image, drawing, page = [await part(served, session, message, it) for it in (1, 2, 3)]
        missing = [
            (await part(served, *it)).status_code
            for it in (
                (session, message, 0),
                (session, message, 4),
                (session, message, "+1"),
                (session, "m_none", 1),
                ("t_none", message, 1),
            )
        ]

    assert (image.content, image.headers["content-type"]) == (PNG, "image/png")
    assert image.headers["content-disposition"] == "inline; filename*=UTF-8''a.png"
    for saved, data in ((drawing, SVG), (page, files[2][2])):
        assert saved.content == data
        assert saved.headers["content-type"] == "application/octet-stream"
        assert saved.headers["content-disposition"].startswith("attachment; filename*")
    for answer in (image, drawing, page):
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert page.headers["content-disposition"].endswith("''%C3%A9.html")
    assert drawing.headers["content-disposition"].endswith("''x%22%3B%0D%0Ay.svg")
    assert missing == [404] * 5


async def test_a_file_of_a_tool_is_had_from_its_answer() -> None:
    @tool
    def draw() -> Part:
        """Draw."""
        return Part("image/png", data=PNG)

    painter = Agent("painter", model=ScriptedModel([ToolCall("draw", {}), "done"]), tools=[draw])
    async with serving(painter) as served:
        run = (await ended(served, (await started(served, "painter"))["id"]))["id"]
        answer = (await said(served, run))["data"][2]
        drawn = await part(served, run, answer["id"], 1)

    assert answer["parts"][0]["media_type"] == "image/png"
    assert (drawn.content, drawn.headers["content-disposition"]) == (PNG, "inline")


async def test_calls_that_were_made_again_are_in_their_places_also_at_rest() -> None:
    trouble = ModelError("503: come back", kind=Failure.OVERLOADED)
    model = with_fallback(
        with_retries(named("first", trouble), attempts=2, base_seconds=0.001),
        named("other", "the other model says it"),
    )
    async with serving(Agent("a", model=with_compaction(model, window=2_000))) as served:
        session = await opened(served, "a")
        path = f"/v1/sessions/{session}/messages"
        for _ in range(2):
            await served.http.post(path, json={"text": "try " * 400})
            [*_, reply] = await inbox(served, session)
            await served.http.delete(f"/v1/sessions/{session}/inbox/{reply['turn']}")
        whole = await said(served, session)
        pages = [await said(served, session, f"?limit=1&after={it}") for it in range(4)]

    again, instead = whole["incidents"][:2]
    assert (again["after"], again["then"]) == (1, "")
    assert "503: come back" in again["error"]
    assert (instead["after"], instead["then"]) == (1, "other")
    shortened = [it for it in whole["incidents"] if it["left_out"]]
    assert [it["after"] for it in shortened] == [3]
    assert [it for page in pages for it in page["incidents"]] == whole["incidents"]


async def test_the_transcript_holds_reasoning_on_request() -> None:
    async with serving(Agent("a", model=thinker("42", "43"))) as served:
        session = await opened(served, "a")
        path = f"/v1/sessions/{session}/messages"
        for asks in (True, False):
            await served.http.post(path, json={"text": "?", "reasoning": asks})
            await inbox(served, session)
        answers = (await said(served, session))["data"][1::2]

    assert [it["reasoning"] for it in answers] == ["Let me see.", ""]
