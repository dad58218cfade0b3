"""The rules of the three protocols for a request, from their documents.

Written apart from what we send, so that both can be wrong but not in the same way. Each function
raises an `AssertionError` for what the provider would answer with HTTP 400.
"""

import base64
import hashlib
import json
import re
from itertools import pairwise
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MESSAGES_ID = re.compile(r"[a-zA-Z0-9_-]+")
EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
DATA_URL = re.compile(r"data:([a-z0-9.+/-]+);base64,(.+)")
IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
RESPONSES_FILES = {
    "application/pdf",
    "application/rtf",
    "application/msword",
    "application/vnd.ms-excel",
    "application/vnd.ms-powerpoint",
    "application/vnd.oasis.opendocument.text",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}


ENCRYPTED = "gAAAAABencrypted"


def signature_of(thought: str) -> str:
    """Return what proves that a model has thought this."""
    return hashlib.sha256(thought.encode()).hexdigest()


def only(thing: dict[str, Any], required: str, optional: str = "") -> None:
    """Demand these fields and allow those."""
    missing = set(required.split()) - set(thing)
    unknown = set(thing) - set(required.split()) - set(optional.split())
    assert not missing, f"missing: {missing}"
    assert not unknown, f"unknown: {unknown}"


def unique(ids: list[str]) -> None:
    assert len(ids) == len(set(ids)), f"ids that come twice: {ids}"


def is_object_schema(schema: dict[str, Any]) -> None:
    assert schema["type"] == "object"


def is_arguments(text: str) -> None:
    assert isinstance(json.loads(text), dict)


def check_strict(schema: Any) -> None:
    """Demand what both providers demand of a strict schema."""
    if isinstance(schema, list):
        for item in schema:
            check_strict(item)
    if not isinstance(schema, dict):
        return
    assert not set(schema) & {"default", "oneOf", "allOf", "minimum", "prefixItems"}
    if "$ref" in schema:
        assert set(schema) == {"$ref"}
        return
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) == set(schema["properties"])
    for part in ("properties", "$defs"):
        for inner in schema.get(part, {}).values():
            check_strict(inner)
    check_strict(schema.get("anyOf"))
    check_strict(schema.get("items"))


def check_format(format_: dict[str, Any]) -> None:
    only(format_, "name schema", "strict description type")
    assert NAME.fullmatch(format_["name"])
    is_object_schema(format_["schema"])
    if format_["strict"]:
        check_strict(format_["schema"])


def is_base64(text: str) -> None:
    assert base64.b64decode(text, validate=True)


def held_by(url: str) -> str:
    """Return the media type of what is in a URL."""
    found = DATA_URL.fullmatch(url)
    assert found, "no data: URL"
    is_base64(found[2])
    return found[1]


def is_image_url(url: str) -> None:
    assert re.match("https?://[^/]", url) or held_by(url) in IMAGES


def check_chat_part(part: dict[str, Any]) -> None:
    match part["type"]:
        case "text":
            only(part, "type text")
            assert part["text"].strip()
        case "image_url":
            only(part, "type image_url")
            only(part["image_url"], "url", "detail")
            is_image_url(part["image_url"]["url"])
        case "file":
            only(part, "type file")
            only(part["file"], "filename file_data")
            assert part["file"]["filename"]
            assert held_by(part["file"]["file_data"]) == "application/pdf"
        case other:
            raise AssertionError(f"unknown: {other}")


def check_responses_part(part: dict[str, Any]) -> None:
    match part["type"]:
        case "input_text":
            only(part, "type text")
            assert part["text"].strip()
        case "input_image":
            only(part, "type image_url detail")
            is_image_url(part["image_url"])
            assert part["detail"] in {"auto", "low", "high"}
        case "input_file" if "file_url" in part:
            only(part, "type file_url")
            assert re.match("https?://[^/]", part["file_url"])
        case "input_file":
            only(part, "type filename file_data")
            assert part["filename"]
            assert held_by(part["file_data"]) in RESPONSES_FILES
        case other:
            raise AssertionError(f"unknown: {other}")


def check_sampling(body: dict[str, Any], highest: float) -> None:
    assert 0 <= body.get("temperature", 1) <= highest
    assert 0 <= body.get("top_p", 1) <= 1


def check_openai_tool_choice(body: dict[str, Any], tools: set[str]) -> None:
    if "tool_choice" in body or "parallel_tool_calls" in body:
        assert tools, "only allowed when tools are specified"
    if isinstance(choice := body.get("tool_choice", "auto"), dict):
        assert choice["type"] == "function"
    else:
        assert choice in {"auto", "none", "required"}


def check_messages_tool_choice(choice: dict[str, Any], names: list[str]) -> None:
    match choice["type"]:
        case "tool":
            only(choice, "type name", "disable_parallel_tool_use")
            assert choice["name"] in names
        case "auto" | "any":
            only(choice, "type", "disable_parallel_tool_use")
        case "none":
            only(choice, "type")
        case other:
            raise AssertionError(f"unknown: {other}")


def check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking", {"type": "disabled"})
    # The first models that are no longer told how long to think.
    decides = not re.search(r"claude-(3|[a-z]+-4(-[0-5])?(-\d{8})?$)", body["model"])
    match thinking["type"]:
        case "disabled":
            only(thinking, "type")
            return
        case "adaptive":
            only(thinking, "type", "display")
            assert decides, "adaptive thinking is not supported on this model"
        case "enabled":
            only(thinking, "type budget_tokens", "display")
            assert not decides, "use thinking.type.adaptive"
            assert 1_024 <= thinking["budget_tokens"] < body["max_tokens"]
            assert "effort" not in body.get("output_config", {})
        case other:
            raise AssertionError(f"unknown: {other}")
    said = [it["content"] for it in body["messages"] if it["role"] == "assistant"]
    if thinking["type"] == "enabled" and said:
        kinds = [block["type"] for block in said[-1]]
        assert "tool_use" not in kinds or kinds[0].endswith("thinking"), (
            "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
        )
    assert body.get("temperature", 1) == 1, "may only be set to 1 when thinking"
    assert body.get("top_p", 1) >= 0.95, "must be at least 0.95 when thinking"
    choice = body.get("tool_choice", {"type": "auto"})["type"]
    assert choice in {"auto", "none"}, "thinking may not be enabled when forcing"


def check_chat_settings(body: dict[str, Any]) -> None:
    check_sampling(body, highest=2)
    assert 0 < len(body.get("stop", ["x"])) <= 4
    assert body.get("reasoning_effort", "low") in EFFORTS
    for penalty in ("presence_penalty", "frequency_penalty"):
        assert -2 <= body.get(penalty, 0) <= 2
    tools = {tool["function"]["name"] for tool in body.get("tools", [])}
    check_openai_tool_choice(body, tools)
    if "top_logprobs" in body:
        assert body["logprobs"] is True, "top_logprobs needs logprobs"
        assert 0 <= body["top_logprobs"] <= 20
    if isinstance(choice := body.get("tool_choice"), dict):
        only(choice, "type function")
        assert choice["function"]["name"] in tools


def check_responses_settings(body: dict[str, Any]) -> None:
    check_sampling(body, highest=2)
    if "reasoning" in body:
        only(body["reasoning"], "", "effort summary")
        assert body["reasoning"].get("effort", "low") in EFFORTS
    tools = {tool["name"] for tool in body.get("tools", [])}
    check_openai_tool_choice(body, tools)
    if isinstance(choice := body.get("tool_choice"), dict):
        only(choice, "type name")
        assert choice["name"] in tools


def check_chat(body: dict[str, Any]) -> None:
    only(
        body,
        "model messages",
        "stream stream_options tools response_format max_tokens max_completion_tokens"
        " temperature top_p seed stop presence_penalty frequency_penalty"
        " reasoning_effort parallel_tool_calls tool_choice service_tier prompt_cache_key"
        " logprobs top_logprobs",
    )
    check_chat_settings(body)
    assert body["messages"]
    if "stream_options" in body:
        assert body["stream"]
    waiting: list[str] = []
    ids: list[str] = []
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            only(message, "role tool_call_id content")
            assert message["tool_call_id"] in waiting, "an answer to no call"
            waiting.remove(message["tool_call_id"])
            assert isinstance(message["content"], str), "no parts in a tool message"
            continue
        assert not waiting, f"calls without an answer: {waiting}"
        if role == "assistant" and "tool_calls" in message:
            only(message, "role content tool_calls")
            assert message["tool_calls"]
            for call in message["tool_calls"]:
                only(call, "id type function")
                only(call["function"], "name arguments")
                assert NAME.fullmatch(call["function"]["name"])
                is_arguments(call["function"]["arguments"])
                assert 0 < len(call["id"]) <= 40
                waiting.append(call["id"])
            ids += waiting
        else:
            only(message, "role content")
            assert role in {"system", "user", "assistant"}
            assert message["content"]
            if not isinstance(message["content"], str):
                assert role == "user"
                for part in message["content"]:
                    check_chat_part(part)
    assert not waiting, f"calls without an answer: {waiting}"
    unique(ids)
    for tool in body.get("tools", []):
        only(tool, "type function")
        only(tool["function"], "name parameters", "description strict")
        assert NAME.fullmatch(tool["function"]["name"])
        is_object_schema(tool["function"]["parameters"])
    if "response_format" in body:
        only(body["response_format"], "type json_schema")
        assert body["response_format"]["type"] == "json_schema"
        check_format(body["response_format"]["json_schema"])


def check_output(output: str | list[dict[str, Any]]) -> None:
    if not isinstance(output, str):
        assert output
        for part in output:
            check_responses_part(part)


def check_responses(body: dict[str, Any]) -> None:
    only(
        body,
        "model input",
        "stream store instructions tools text max_output_tokens temperature top_p"
        " reasoning parallel_tool_calls tool_choice service_tier prompt_cache_key"
        " include top_logprobs",
    )
    check_responses_settings(body)
    assert body["input"]
    asked: list[str] = []
    answered: list[str] = []
    for item, following in pairwise([*body["input"], {"type": "the end"}]):
        match item["type"]:
            case "reasoning":
                only(item, "type id summary encrypted_content")
                assert item["encrypted_content"] == ENCRYPTED
                assert "reasoning.encrypted_content" in body["include"]
                assert following["type"] in {"reasoning", "function_call"}, (
                    "provided without its required following item"
                )
            case "message":
                only(item, "type role content")
                assert item["role"] in {"user", "assistant"}
                assert item["content"]
                if not isinstance(item["content"], str):
                    assert item["role"] == "user"
                    for part in item["content"]:
                        check_responses_part(part)
                assert sorted(asked) == sorted(answered), "calls without an answer"
            case "function_call":
                only(item, "type call_id name arguments")
                assert NAME.fullmatch(item["name"])
                assert 0 < len(item["call_id"]) <= 64
                is_arguments(item["arguments"])
                asked.append(item["call_id"])
            case "function_call_output":
                only(item, "type call_id output")
                check_output(item["output"])
                assert item["call_id"] in asked, "an answer to no call"
                assert item["call_id"] not in answered, "a second answer"
                answered.append(item["call_id"])
            case other:
                raise AssertionError(f"unknown: {other}")
    assert sorted(asked) == sorted(answered), "calls without an answer"
    unique(asked)
    for tool in body.get("tools", []):
        only(tool, "type name parameters strict", "description")
        assert NAME.fullmatch(tool["name"])
        is_object_schema(tool["parameters"])
    if "text" in body:
        only(body["text"], "format")
        assert body["text"]["format"]["type"] == "json_schema"
        check_format(body["text"]["format"])


def check_messages(body: dict[str, Any]) -> None:
    only(
        body,
        "model max_tokens messages",
        "stream system tools tool_choice output_config temperature top_p"
        " stop_sequences thinking service_tier",
    )
    assert body["max_tokens"] >= 1
    check_sampling(body, highest=1)
    assert all(text.strip() for text in body.get("stop_sequences", ["x"]))
    check_thinking(body)
    check_system(body.get("system", "x"))
    check_marks(body)
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    assert roles[0] == "user", "the first message is the user's"
    assert roles[-1] == "user", "the last message is not the model's to continue"
    assert all(role != after for role, after in pairwise(roles))
    waiting: list[str] = []
    ids: list[str] = []
    for message in messages:
        only(message, "role content")
        assert message["content"]
        kinds = [block["type"] for block in message["content"]]
        if message["role"] == "assistant":
            assert set(kinds) <= {"text", "tool_use", "thinking", "redacted_thinking"}
        else:
            # Answers come first, and all of them in the very next message.
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
            assert set(kinds) <= {"text", "image", "document", "tool_result"}
            given = [
                block["tool_use_id"]
                for block in message["content"]
                if block["type"] == "tool_result"
            ]
            assert sorted(given) == sorted(waiting), "calls and answers do not pair"
            waiting = []
        for block in message["content"]:
            check_block(block)
            if block["type"] == "tool_use":
                waiting.append(block["id"])
                ids.append(block["id"])
    unique(ids)
    names = [tool["name"] for tool in body.get("tools", [])]
    unique(names)
    assert names or not ids, "calls need tools"
    for tool in body.get("tools", []):
        only(tool, "name input_schema", "description cache_control")
        assert NAME.fullmatch(tool["name"])
        is_object_schema(tool["input_schema"])
    if "tool_choice" in body:
        assert names
        check_messages_tool_choice(body["tool_choice"], names)
    if "output_config" in body:
        only(body["output_config"], "", "format effort")
        assert body["output_config"].get("effort", "low") in EFFORTS[2:]
    if "format" in body.get("output_config", {}):
        only(body["output_config"]["format"], "type schema")
        is_object_schema(body["output_config"]["format"]["schema"])
        check_strict(body["output_config"]["format"]["schema"])


def check_system(system: str | list[dict[str, Any]]) -> None:
    for text in [system] if isinstance(system, str) else [it["text"] for it in system]:
        assert text.strip()


def check_marks(body: dict[str, Any]) -> None:
    """Demand what is demanded of marks for the cache: four at most, an hour before minutes."""
    system = body.get("system", ())
    blocks = [
        *body.get("tools", ()),
        *(() if isinstance(system, str) else system),
        *(it for message in body["messages"] for it in message["content"]),
    ]
    marks = [it["cache_control"] for it in blocks if "cache_control" in it]
    assert len(marks) <= 4, "A maximum of 4 blocks with cache_control may be provided"
    for mark in marks:
        only(mark, "type", "ttl")
        assert mark["type"] == "ephemeral"
        assert mark.get("ttl", "5m") in {"5m", "1h"}


def check_block(block: dict[str, Any]) -> None:
    if "cache_control" in block:
        block = {key: block[key] for key in block if key != "cache_control"}
        assert block["type"] not in {"thinking", "redacted_thinking"}
    match block["type"]:
        case "text":
            only(block, "type text")
            assert block["text"].strip(), "text blocks must not be blank"
        case "tool_use":
            only(block, "type id name input")
            assert MESSAGES_ID.fullmatch(block["id"])
            assert NAME.fullmatch(block["name"])
            assert isinstance(block["input"], dict)
        case "image":
            only(block, "type source")
            check_source(block["source"], IMAGES)
        case "document":
            only(block, "type source", "title")
            assert 0 < len(block.get("title", "x")) <= 500
            check_source(block["source"], {"application/pdf"})
        case "thinking":
            only(block, "type thinking signature")
            assert block["signature"] == signature_of(block["thinking"]), (
                "Invalid `signature` in `thinking` block"
            )
        case "redacted_thinking":
            only(block, "type data")
        case _:
            only(block, "type tool_use_id content", "is_error")
            assert block["content"] or not block.get("is_error")
            if not isinstance(block["content"], str):
                for inner in block["content"]:
                    assert inner["type"] in {"text", "image", "document"}
                    check_block(inner)


def check_source(source: dict[str, Any], media_types: set[str]) -> None:
    match source["type"]:
        case "base64":
            only(source, "type media_type data")
            assert source["media_type"] in media_types
            is_base64(source["data"])
        case "url":
            only(source, "type url")
            assert source["url"].startswith("https://")
        case "text":
            only(source, "type media_type data")
            assert "application/pdf" in media_types, "only documents are of text"
            assert source["media_type"] == "text/plain"
            assert source["data"].strip()
        case other:
            raise AssertionError(f"unknown: {other}")
