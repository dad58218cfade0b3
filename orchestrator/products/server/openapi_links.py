"""The links and examples of the OpenAPI document: the next operations after an answer, and bodies.

With them a program without other knowledge reaches every route: it lists the models, runs one, and
goes on with the ids in the answers.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

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
"""The place of other operations' parameters in the answer of an operation."""
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
    "update_conversation": {"metadata": {"topic": "Lima"}},
    "create_items": {"items": [{"role": "user", "content": "And of Chile?"}]},
    "create_chat_completion": {
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
