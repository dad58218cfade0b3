"""What is served, as OpenAPI says it: made of the very table that the routes are made of."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from orchestrator.server.operation import LONGEST_KEY, Operation, ResponseSpec
from orchestrator.server.transport.errors import JSON, ErrorBody
from orchestrator.server.transport.sse import SSE_MEDIA_TYPE

VERSION: Final = "3.1.0"
REF: Final = "#/components/schemas/{name}"
BEARER: Final = "token"
ABOUT: Final = """\
Agents that hand work on, over HTTP: what OpenAI's clients speak, and the tree that is only ours.

Every request that runs an agent is a run; the header `x-run-id` of the answer names it. Errors have
OpenAI's shape. A POST may be sent again with the same `Idempotency-Key`: it is done once.
Where a request comes from is said in headers `x-session-platform`, `-source`, `-chat-id`,
`-chat-name`, `-thread-id`, `-user-id`, `-user-name`, `-key`, `-message-id`, `-workspace`.
"""
_EVENT: Final[Mapping[str, Any]] = {
    "description": "One event of the stream.",
    "type": "object",
    "properties": {
        "event": {"type": "string"},
        "id": {"type": "string"},
        "data": {"type": "string", "description": "JSON, in one line."},
    },
    "required": ["data"],
}
_ACCESS_STATUSES: Final = (401, 421)
_BODY_STATUSES: Final = (400, 408, 413, 415)
_DESCRIPTIONS: Final[Mapping[int, str]] = {
    400: "The request is wrong",
    401: "The token is missing, or wrong",
    403: "It is not allowed",
    404: "There is no such thing",
    408: "The body did not come",
    409: "It does not go with what is true by now",
    413: "The body is too long",
    415: "The body is no JSON",
    421: "The server does not answer to this host",
    422: "It is understood, and cannot be done",
    429: "The provider wants to be asked later",
    499: "It was cancelled",
    500: "Something went wrong inside, or in the agent",
    502: "The provider failed",
    503: "The server is stopping, or the provider is overloaded",
    504: "It has taken too long",
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of routes."""
    operations = tuple(operations)
    schemas, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _operation(operation, schemas, components)
    # What stands behind a question mark is said field by field, where it is taken.
    for query in {it.query for it in operations} - {None}:
        del components[_name(schemas[query])]
    return {
        "openapi": VERSION,
        "info": {
            "title": "delegation-orchestrator",
            "version": version("delegation-orchestrator"),
            "description": ABOUT,
        },
        "security": [{BEARER: []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(
    operations: Iterable[Operation],
) -> tuple[Mapping[Any, dict[str, Any]], dict[str, Any]]:
    """Return how each type is said, and all that those refer to."""
    types = [ErrorBody, *(kind for it in operations for kind in _types(it))]
    said, components = msgspec.json.schema_components(types, ref_template=REF)
    return dict(zip(types, said, strict=True)), components


def _types(operation: Operation) -> Iterator[Any]:
    for kind in (operation.body, operation.query):
        if kind is not None:
            yield kind
    for answer in operation.responses.values():
        yield from _bodies(answer)


def _bodies(answer: ResponseSpec) -> Sequence[Any]:
    return () if answer.body is None else (answer.body, *answer.others)


def _operation(
    operation: Operation,
    schemas: Mapping[Any, dict[str, Any]],
    components: Mapping[str, Any],
) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, schemas),
    }
    if parameters := [*_parameters(operation, schemas, components)]:
        said["parameters"] = parameters
    if operation.body is not None:
        said["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": schemas[operation.body]}},
        }
    if operation.is_public:
        said["security"] = []
    return said


def _parameters(
    operation: Operation,
    schemas: Mapping[Any, dict[str, Any]],
    components: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", operation.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
        }
    if operation.query is not None:
        said = components[_name(schemas[operation.query])]
        fields: Mapping[str, dict[str, Any]] = said["properties"]
        for field, schema in fields.items():
            yield {"name": field, "in": "query", "schema": _without_null(schema)}
    if operation.takes_idempotency_key:
        yield _header(
            "Idempotency-Key",
            "The same key again has the same effect, once.",
            {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
        )
    if operation.takes_last_event_id:
        yield _header(
            "Last-Event-ID",
            "The id of the last event that you have; `after` counts more.",
            {"type": "string", "pattern": "^[0-9]{0,15}$"},
        )


def _name(schema: Mapping[str, Any]) -> str:
    """Return which component a schema refers to."""
    return str(schema["$ref"]).removeprefix(REF.format(name=""))


def _header(name: str, words: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": words, "schema": schema}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a field that is left out where it says nothing."""
    if "anyOf" not in schema:
        return dict(schema)
    (only,) = [it for it in schema["anyOf"] if it != {"type": "null"}]
    return {
        **{key: schema[key] for key in schema if key not in {"anyOf", "default"}},
        **only,
    }


def _responses(
    operation: Operation, schemas: Mapping[Any, dict[str, Any]]
) -> dict[str, Any]:
    said = {
        str(status): _response(answer, schemas)
        for status, answer in operation.responses.items()
    }
    for status in sorted(_error_statuses(operation) - operation.responses.keys()):
        said[str(status)] = {
            "description": _DESCRIPTIONS[status],
            "content": {JSON: {"schema": schemas[ErrorBody]}},
        }
    return said


def _error_statuses(operation: Operation) -> set[int]:
    failing = {500, *operation.error_statuses}
    if not operation.is_public:
        failing |= {*_ACCESS_STATUSES}
    if operation.body is not None:
        failing |= {*_BODY_STATUSES}
    if (
        operation.query is not None
        or operation.takes_idempotency_key
        or operation.takes_last_event_id
    ):
        failing.add(400)
    return failing


def _response(
    answer: ResponseSpec, schemas: Mapping[Any, dict[str, Any]]
) -> dict[str, Any]:
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
    said: dict[str, Any] = {"description": answer.description}
    if content:
        said["content"] = content
    return said
