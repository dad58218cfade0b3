"""The OpenAPI document, made from the same table as the routes; body classes have unique names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.request_ids import LONGEST_KEY
from orchestrator.products.server.transport.errors import (
    JSON,
    MESSAGES,
    AnthropicErrorBody,
    ErrorBody,
)
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE
from orchestrator.version import VERSION

SOURCES: Final[Mapping[str, Mapping[str, str]]] = {
    "list_models": {"model": "$response.body#/data/0/id"},
    "create_run": {"run": "$response.body#/id"},
    "list_runs": {"run": "$response.body#/data/0/id"},
    "get_tree": {"task": "$response.body#/nodes/0/id"},
    "get_transcript": {
        "task": "$request.path.task",
        "message": "$response.body#/data/0/id",
        "part": "$response.body#/data/0/parts/0/number",
    },
    "list_approvals": {"approval": "$response.body#/data/0/id"},
    "list_jobs": {"job": "$response.body#/data/0/id"},
    "create_session": {"session": "$response.body#/id"},
    "list_sessions": {"session": "$response.body#/data/0/id"},
    "read_inbox": {"session": "$request.path.session", "turn": "$response.body#/data/0/turn"},
    "create_response": {"response": "$response.body#/id", "run": "$response.body#/run"},
    "create_conversation": {"conversation": "$response.body#/id"},
    "create_items": {
        "conversation": "$request.path.conversation",
        "item": "$response.body#/data/0/id",
    },
    "create_chat_completion": {"run": "$response.body#/run_id", "completion": "$response.body#/id"},
    "create_completion": {"run": "$response.body#/run_id"},
}
"""The place of other operations' parameters in the answer of an operation: links need them."""
MODEL: Final = "a-model"
EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "create_run": {"model": MODEL, "input": "What is the capital of Peru?"},
    "create_simulation": {"model": MODEL, "input": "What is the capital of Peru?", "seeds": 1},
    "prune_runs": {"older_than": 2_592_000, "dry_run": True},
    "create_session": {"model": MODEL},
    "change_session": {"metadata": {"title": "Capitals"}},
    "tell_session": {"text": "What is the capital of Peru?"},
    "steer_task": {"text": "Look at the coast, too."},
    "answer_approval": {"answer": "once"},
    "edit_job": {"schedule": "0 8 * * MON", "zone": "Europe/Berlin"},
    "create_response": {"model": MODEL, "input": "What is the capital of Peru?"},
    "create_conversation": {
        "items": [{"role": "user", "content": "What is the capital of Peru?"}],
        "metadata": {"topic": "Peru"},
    },
    "branch_session": {"before": 1},
    "update_conversation": {"metadata": {"topic": "Lima"}},
    "create_items": {"items": [{"role": "user", "content": "And of Chile?"}]},
    "create_chat_completion": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the capital of Peru?"}],
    },
    "create_message": {
        "model": MODEL,
        "max_tokens": 1_000,
        "messages": [{"role": "user", "content": "What is the capital of Peru?"}],
    },
    "count_message_tokens": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the capital of Peru?"}],
    },
    "count_input_tokens": {"model": MODEL, "input": "What is the capital of Peru?"},
    "update_completion": {"metadata": {"topic": "Lima"}},
    "create_completion": {"model": MODEL, "prompt": "The capital of Peru is"},
}
"""An example body of each operation; its model is one that `GET /v1/models` lists."""


def links_from(name: str, others: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the links of an operation's answer to others, given by name and path."""
    known = SOURCES.get(name, {})
    links: dict[str, Any] = {}
    for other, path in others:
        needed = re.findall(r"\{(\w+)\}", path)
        if other == name:
            continue
        if needed and known.keys() >= {*needed} and known.keys() & {*needed}:
            parameters = {each: known[each] for each in needed}
            links[other] = {"operationId": other, "parameters": parameters}
        elif "model" in known and EXAMPLES.get(other, {}).get("model") == MODEL:
            body = {**EXAMPLES[other], "model": known["model"]}
            links[other] = {"operationId": other, "requestBody": body}
    return links


OPENAPI_VERSION: Final = "3.1.0"
REF: Final = "#/components/schemas/{name}"
BEARER: Final = "token"
ABOUT: Final = """\
Agents that delegate, over HTTP: OpenAI's protocols, and an API of runs, tasks and sessions.

Every request that runs an agent is a run; the header `x-run-id` of the response names it. Errors
have OpenAI's shape. A POST may be sent again with the same `Idempotency-Key`: it has one effect.
The origin of a request is in the headers `x-session-platform`, `-source`, `-chat-id`,
`-chat-name`, `-thread-id`, `-user-id`, `-user-name`, `-key`, `-message-id`, `-workspace`.

A token belongs to a key. `security` names the scope that the key must have: `run`, `read`, `steer`,
`approve` or `admin`. The sessions of another owner are not found: the status is 404.
"""
_EVENT: Final[Mapping[str, Any]] = {
    "description": "One event of the stream.",
    "type": "object",
    "properties": {
        "event": {"type": "string"},
        "id": {"type": "string"},
        "data": {"type": "string", "description": "JSON in one line."},
    },
    "required": ["data"],
}
_ACCESS_STATUSES: Final = (401, 403, 421, 429)
_BODY_STATUSES: Final = (400, 408, 413, 415)
_DESCRIPTIONS: Final[Mapping[int, str]] = {
    400: "The request is invalid",
    401: "The token is missing or wrong",
    403: "The key does not have the scope",
    404: "The subject was not found",
    408: "The client stopped sending the body",
    409: "The request conflicts with the present state",
    413: "The body is too large",
    415: "The body is not JSON",
    421: "The server does not answer to this host",
    422: "The request is valid, but cannot be carried out",
    429: "The key is at one of its limits, or the provider limits requests",
    499: "The run was cancelled",
    500: "The server or the agent failed",
    502: "The provider failed",
    503: "The server is stopping, or the provider is overloaded",
    504: "The run took too long",
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of routes."""
    operations = tuple(operations)
    schemas, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _operation(operation, schemas, components)
    _add_links(paths, operations)
    # The fields of a query are documented as parameters of its operations.
    for query in {it.query for it in operations} - {None}:
        del components[_name(schemas[query])]
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "delegation-orchestrator", "version": VERSION, "description": ABOUT},
        "security": [{BEARER: []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
        },
    }


def _add_links(paths: Mapping[str, Mapping[str, Any]], operations: Iterable[Operation]) -> None:
    """Add links to the answers: the operations that each answer leads to."""
    named = [(it.name, it.path) for it in operations]
    for operation in operations:
        if links := links_from(operation.name, named):
            described = paths[operation.path][operation.method.lower()]
            first = operation.answers[0]
            described["responses"][str(first.status)]["links"] = links


def _schemas(
    operations: Iterable[Operation],
) -> tuple[Mapping[Any, dict[str, Any]], dict[str, Any]]:
    """Return the schema of each type, and the components that they refer to."""
    types = [ErrorBody, AnthropicErrorBody, *(kind for it in operations for kind in _types(it))]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    return dict(zip(types, schemas, strict=True)), components


def _types(operation: Operation) -> Iterator[Any]:
    for kind in (operation.body, operation.query):
        if kind is not None:
            yield kind
    for answer in operation.answers:
        yield from _bodies(answer)


def _bodies(answer: Answer) -> Sequence[Any]:
    return () if answer.body is None else (answer.body, *answer.others)


def _operation(
    operation: Operation, schemas: Mapping[Any, dict[str, Any]], components: Mapping[str, Any]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, schemas),
    }
    if parameters := [*_parameters(operation, schemas, components)]:
        described["parameters"] = parameters
    if operation.body is not None:
        content: dict[str, Any] = {"schema": schemas[operation.body]}
        if (example := EXAMPLES.get(operation.name)) is not None:
            content["example"] = example
        described["requestBody"] = {"required": True, "content": {JSON: content}}
    if operation.is_public or operation.scope is None:
        described["security"] = []
    else:
        # Since 3.1 these are the roles that a bearer must have.
        described["security"] = [{BEARER: [operation.scope.value]}]
    return described


def _parameters(
    operation: Operation, schemas: Mapping[Any, dict[str, Any]], components: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", operation.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
        }
    if operation.query is not None:
        query = components[_name(schemas[operation.query])]
        fields: Mapping[str, dict[str, Any]] = query["properties"]
        for field, schema in fields.items():
            yield {"name": field, "in": "query", "schema": _without_null(schema)}
    if operation.takes_idempotency_key:
        yield _header(
            "Idempotency-Key",
            "A repeated request with the same key has one effect.",
            {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
        )
    if operation.takes_last_event_id:
        yield _header(
            "Last-Event-ID",
            "The id of the last event that you have; `after` overrides it.",
            {"type": "string", "pattern": "^[0-9]{0,15}$"},
        )


def _name(schema: Mapping[str, Any]) -> str:
    """Return the name of the component that a schema refers to."""
    return str(schema["$ref"]).removeprefix(REF.format(name=""))


def _header(name: str, about: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": about, "schema": schema}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter, which is left out and never null."""
    if "anyOf" not in schema:
        return dict(schema)
    (only,) = [it for it in schema["anyOf"] if it != {"type": "null"}]
    return {**{key: schema[key] for key in schema if key not in {"anyOf", "default"}}, **only}


def _responses(operation: Operation, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    described = {str(it.status): _response(it, schemas) for it in operation.answers}
    error = AnthropicErrorBody if operation.path.startswith(MESSAGES) else ErrorBody
    for status in sorted(_error_statuses(operation) - {it.status for it in operation.answers}):
        described[str(status)] = {
            "description": _DESCRIPTIONS[status],
            "content": {JSON: {"schema": schemas[error]}},
        }
    return described


def _error_statuses(operation: Operation) -> set[int]:
    statuses = {500, *operation.errors}
    if "{" in operation.path:
        statuses.add(404)
    if not operation.is_public:
        statuses |= {*_ACCESS_STATUSES}
    if operation.body is not None:
        statuses |= {*_BODY_STATUSES}
    if (
        operation.query is not None
        or operation.takes_idempotency_key
        or operation.takes_last_event_id
    ):
        statuses.add(400)
    return statuses


def _response(answer: Answer, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    bodies = [schemas[kind] for kind in _bodies(answer)]
    content: dict[str, Any] = {}
    for media in answer.media_types:
        if media == SSE_MEDIA_TYPE:
            content[media] = {"schema": _EVENT}
        elif media != JSON:
            content[media] = {"schema": {"type": "string"}}
        elif bodies:
            one = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
            content[media] = {"schema": one}
    described: dict[str, Any] = {"description": answer.description}
    if content:
        described["content"] = content
    return described
