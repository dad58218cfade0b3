"""The extra rules of single services, from their documents.

A service is known by the path of a request: its address, or the first part of an address that a
test gives it. Each check raises an `AssertionError` for what the service would refuse.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from tests.provider_rules import check_chat_part

AWS_LOGIN = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[A-Z0-9]+/\d{8}/[a-z0-9-]+/bedrock/aws4_request,"
    r" SignedHeaders=([a-z-]+;)*host;([a-z-]+;)*x-amz-date(;[a-z-]+)*,"
    r" Signature=[0-9a-f]{64}"
)


def check_mistral(headers: Mapping[str, str], body: dict[str, Any]) -> None:
    """It refuses fields that it does not know, and ids of another length."""
    assert headers["authorization"].startswith("Bearer ")
    for unknown in ("stream_options", "seed", "max_completion_tokens"):
        assert unknown not in body, "Extra inputs are not permitted"
    ids = [
        id_
        for message in body["messages"]
        for id_ in (
            message.get("tool_call_id"),
            *(call["id"] for call in message.get("tool_calls", ())),
        )
        if id_ is not None
    ]
    roles = [message["role"] for message in body["messages"]]
    for role, after in pairwise(roles):
        assert (role, after) != ("tool", "user"), "Unexpected role 'user' after 'tool'"
    for id_ in ids:
        assert re.fullmatch("[a-zA-Z0-9]{9}", id_), f"Tool call id was {id_}"


def check_deepseek(headers: Mapping[str, str], body: dict[str, Any]) -> None:
    assert headers["authorization"].startswith("Bearer ")
    kind = body.get("response_format", {"type": "text"})["type"]
    assert kind != "json_schema", "This response_format type is unavailable now"
    assert body.get("thinking", {"type": "enabled"})["type"] in {"enabled", "disabled"}


def check_openrouter(headers: Mapping[str, str], body: dict[str, Any]) -> None:
    assert headers["authorization"].startswith("Bearer ")
    assert "reasoning_effort" not in body


def check_azure(headers: Mapping[str, str], body: dict[str, Any]) -> None:
    assert headers["api-key"]
    assert "authorization" not in headers
    assert "max_tokens" not in body, "Use 'max_completion_tokens' instead"


def check_bedrock(headers: Mapping[str, str], body: dict[str, Any]) -> None:
    login = headers["authorization"]
    assert AWS_LOGIN.fullmatch(login) or login.startswith("Bearer "), login
    assert body["anthropic_version"] in {"bedrock-2023-05-31", "2026-10-21"}
    assert not body.keys() & {"model", "stream"}, "extraneous key is not permitted"


def check_vertex(headers: Mapping[str, str], body: dict[str, Any]) -> None:
    assert headers["authorization"].startswith("Bearer ")
    assert body["anthropic_version"] in {"vertex-2023-10-16", "2026-10-21"}
    assert "model" not in body


CHECKS: Mapping[str, Callable[[Mapping[str, str], dict[str, Any]], None]] = {
    r"/at-mistral/": check_mistral,
    r"/at-deepseek/": check_deepseek,
    r"/at-openrouter/": check_openrouter,
    r"/openai/v1/(chat|responses)": check_azure,
    r"/model/[^/]+/invoke(-with-response-stream)?$": check_bedrock,
    r".*/publishers/anthropic/models/[^/]+:(streamR|r)awPredict$": check_vertex,
}


def check_service(path: str, headers: Mapping[str, str], body: Any) -> None:
    """Demand what the service at a path demands."""
    for where, check in CHECKS.items():
        if re.match(where, path):
            check(headers, body)


def without_service_fields(path: str, body: Any) -> Any:
    """Return a request as its protocol has it, without what the service adds or takes away."""
    if "anthropic_version" in body:
        rest = {key: body[key] for key in body if key != "anthropic_version"}
        found = re.search(r"/models?/([^/]+?)(:streamRawPredict|:rawPredict|/invoke|$)", path)
        return {**rest, "model": found[1] if found else "unknown"}
    if path.startswith(("/at-openrouter/", "/at-deepseek/", "/at-gemini/")):
        body = {**body, "messages": [*map(_without_reasoning, body["messages"])]}
    if path.startswith("/at-openrouter/"):
        return {key: body[key] for key in body if key != "reasoning"}
    if path.startswith("/at-mistral/"):
        rest = {key: body[key] for key in body if key != "random_seed"}
        return {**rest, "messages": [*map(_with_text_alone, body["messages"])]}
    if path.startswith("/at-deepseek/"):
        return {key: body[key] for key in body if key != "thinking"}
    return body


def _with_text_alone(message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a tool without its images, which are checked here."""
    if message["role"] != "tool" or isinstance(message["content"], str):
        return message
    for part in message["content"]:
        check_chat_part(part)
    return {**message, "content": message["content"][0]["text"]}


def _without_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what a model is sent back of its own reasoning."""
    kept = {
        key: value
        for key, value in message.items()
        if key not in {"reasoning_content", "reasoning_details"}
    }
    if "tool_calls" in kept:
        kept["tool_calls"] = [
            {key: call[key] for key in call if key != "extra_content"}
            for call in kept["tool_calls"]
        ]
    return kept
