"""A server that speaks OpenAI's chat completions on loopback, and prints its port.

Run as a process of its own: `python tests/fake_openai.py`. It plays every agent well enough for
the documents: it calls the first tool that it is given, and then answers with what the tool said,
or with the least JSON of the type that is asked for.
"""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatCompletions(BaseHTTPRequestHandler):
    """Answers one request after the other."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"role": "assistant", **_reply(asked)}, asked["model"])

    def answer(self, message: dict[str, Any], model: str) -> None:
        body = json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "model": model,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""


def _reply(asked: dict[str, Any]) -> dict[str, Any]:
    last = asked["messages"][-1]
    if last["role"] == "tool" or not asked.get("tools"):
        return {"content": _answer(asked, last)}
    tool = asked["tools"][0]["function"]
    function = {"name": tool["name"], "arguments": json.dumps(_arguments(tool, last["content"]))}
    return {
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


def _answer(asked: dict[str, Any], last: dict[str, Any]) -> str:
    if (wanted := asked.get("response_format")) is not None:
        schema = wanted["json_schema"]["schema"]
        return json.dumps(_least(schema, schema.get("$defs", {})))
    found = str(last["content"])
    if last["role"] == "tool" and found.startswith("{"):
        found = json.loads(found)["results"][0]["output"]
    return found


def _arguments(tool: dict[str, Any], goal: str) -> dict[str, Any]:
    if tool["name"] == "lookup":
        return {"word": "trio"}
    if tool["name"] == "delegate_task":
        agents = re.findall(r"^- (\S+): ", tool["description"], re.MULTILINE)
        return {"goal": goal, "agent": agents[0]}
    parameters = tool["parameters"]
    arguments: dict[str, Any] = _least(parameters, parameters.get("$defs", {}))
    return arguments


def _least(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """Return the least value of a JSON schema."""
    while "$ref" in schema or "anyOf" in schema:
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rpartition("/")[2]]
        else:
            schema = schema["anyOf"][0]
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        return {name: _least(properties[name], definitions) for name in schema.get("required", ())}
    least = {"array": [], "boolean": False, "string": "as you like it", "null": None}
    number = schema.get("minimum", 0)
    return schema.get("enum", [least.get(schema["type"], number)])[0]


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), ChatCompletions) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
