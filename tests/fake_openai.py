"""A server that speaks OpenAI's chat completions on loopback, and prints its port.

Run as a process of its own: `python tests/fake_openai.py`. It plays every agent well enough for
the README: it uses the one tool it is given, and then answers with what the tool said.
"""

import json
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
                "usage": {
                    "prompt_tokens": 20,
                    "completion_tokens": 5,
                    "total_tokens": 25,
                },
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
    if last["role"] == "tool":
        found = last["content"]
        if found.startswith("{"):
            found = json.loads(found)["results"][0]["output"]
        return {"content": found}
    name = asked["tools"][0]["function"]["name"]
    arguments = {"word": "trio"} if name == "lookup" else {"goal": last["content"]}
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), ChatCompletions) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
