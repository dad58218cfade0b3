"""A server that does what no server should, in raw JSON: on stdio, or on HTTP with `--http PORT`.

It imports nothing but the standard library, so that nothing keeps it from being wrong. What it is
to do is said by its arguments, and by those of the calls. Each message that it gets is a line of
the file that HOSTILE_LOG names. Skills are in the file that HOSTILE_SKILLS names.
"""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Write = Callable[[Any], None]
OBJECT = {"type": "object"}
TASKS = "io.modelcontextprotocol/tasks"
TASK = {
    "taskId": "task-1",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttlMs": None,
    "pollIntervalMs": 50,
}
TOOLS: list[Any] = [
    {"name": "reply", "description": "answers the result it is given", "inputSchema": OBJECT},
    {"name": "count", "inputSchema": OBJECT},
    {"name": "count_safely", "inputSchema": OBJECT, "annotations": {"idempotentHint": True}},
    *(
        {"name": name, "inputSchema": OBJECT}
        for name in (
            *("hang", "long", "swarm", "ask", "grandchild", "twice", "wrong_id"),
            *("task", "want", "fail"),
        )
    ),
]


class Hostile:
    """The server, apart from what carries its messages."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.answers: dict[str, Callable[[Any], None]] = {}
        self.asked = 0
        self.polls = 0

    def heard(self, message: Any) -> None:
        if path := os.environ.get("HOSTILE_LOG"):
            with Path(path).open("a") as log:
                log.write(json.dumps(message) + "\n")

    def tools(self) -> list[Any]:
        if path := os.environ.get("HOSTILE_TOOLS"):
            listed: list[Any] = json.loads(Path(path).read_text())
            return listed
        return TOOLS

    def skills(self, part: str) -> Any:
        """Return a part of the file with skills, which the test may change at any time."""
        if path := os.environ.get("HOSTILE_SKILLS"):
            return json.loads(Path(path).read_text())[part]
        return {}

    def on_message(self, message: Any, write: Write) -> None:  # noqa: C901, PLR0912 (a case a method)
        self.heard(message)
        method, id_ = message.get("method"), message.get("id")
        if method is None:
            if (answer := self.answers.pop(str(id_), None)) is not None:
                answer(message)
            return
        if id_ is None:
            return

        def reply(result: Any) -> None:
            if self.options.modern and isinstance(result, dict):
                cached = {"ttlMs": 0, "cacheScope": "public"}
                result = {"resultType": "complete", **cached, **result}
            write({"jsonrpc": "2.0", "id": id_, "result": result})

        match method:
            case "server/discover" if self.options.modern:
                reply(
                    {
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
                    }
                )
            case "tasks/get":
                self.polls += 1
                task: dict[str, Any] = {**TASK, "status": "working"}
                if self.polls > self.options.polls >= 0:
                    content = [{"type": "text", "text": "the task is done"}]
                    task |= {"status": "completed", "result": {"content": content}}
                reply(task)
            case "tasks/cancel":
                reply({})
            case "initialize":
                reply(
                    {
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": {"tools": {"listChanged": True}, **self.skills("declared")},
                        "serverInfo": {"name": "hostile", "version": "1"},
                    }
                )
            case "tools/list":
                page: dict[str, Any] = {"tools": self.tools()}
                if self.options.endless:
                    page["nextCursor"] = "again"
                reply(page)
            case "skills/list":
                reply(self.skills("listed"))
            case "resources/read":
                uri = message["params"]["uri"]
                reply({"contents": [{"uri": uri, **self.skills("contents")[uri]}]})
            case "tools/call":
                self.on_call(message["params"], id_, reply, write)
            case _:
                error = {"code": -32601, "message": f"no {method}"}
                write({"jsonrpc": "2.0", "id": id_, "error": error})

    def on_call(  # noqa: C901, PLR0912 (a case for each wrong)
        self, params: Any, id_: Any, reply: Write, write: Write
    ) -> None:
        name, arguments = params["name"], params.get("arguments") or {}

        def say(text: Any) -> None:
            reply({"content": [{"type": "text", "text": str(text)}]})

        match name:
            case "reply":
                reply(arguments["result"])
            case "count" | "count_safely":
                path = Path(os.environ["HOSTILE_COUNT"])
                count = int(path.read_text() or 0) + 1 if path.exists() else 1
                path.write_text(str(count))
                if count <= int(arguments.get("die", 0)):
                    os._exit(3)
                say(count)
            case "hang":
                pass
            case "fail":
                error = {"code": arguments["code"], "message": "out of paper"}
                write({"jsonrpc": "2.0", "id": id_, "error": error})
            case "long":
                say("x" * int(arguments["bytes"]))
            case "swarm":
                for _ in range(int(arguments["times"])):
                    note = "notifications/tools/list_changed"
                    write({"jsonrpc": "2.0", "method": note})
                say("swarmed")
            case "ask":
                self.asked += 1
                key = f"ask-{self.asked}"
                self.answers[key] = lambda it: say(json.dumps(it.get("result") or it["error"]))
                write(
                    {
                        "jsonrpc": "2.0",
                        "id": key,
                        "method": arguments["method"],
                        "params": arguments.get("params") or {},
                    }
                )
            case "task":
                reply({"resultType": "task", **TASK, "status": "working"})
            case "want":
                given = params.get("inputResponses")
                if given is not None:
                    say(json.dumps(given))
                else:
                    requests = {"it": arguments["request"]}
                    reply({"resultType": "input_required", "inputRequests": requests})
            case "grandchild":
                say(_grandchild())
            case "twice":
                say("first")
                say("second")
            case "wrong_id":
                write({"jsonrpc": "2.0", "id": 4711, "result": {"content": []}})
                write({"jsonrpc": "2.0", "id": None, "result": {}})
                say("right")
            case _:
                error = {"code": -32602, "message": f"Unknown tool: {name}"}
                write({"jsonrpc": "2.0", "id": id_, "error": error})


def _grandchild() -> str:
    """Start a process that leaves our group, ignores signals, and forgets who started it.

    It is found by the word that is returned: its id is another one outside of a sandbox.
    """
    word = os.urandom(8).hex()
    code = (
        "import signal, time\n"
        "for name in ('TERM', 'HUP', 'INT'):\n"
        "    signal.signal(signal.Signals['SIG' + name], signal.SIG_IGN)\n"
        "time.sleep(600)"
    )
    subprocess.Popen(
        [sys.executable, "-c", code, word],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return word


def serve_stdio(hostile: Hostile) -> None:
    options = hostile.options
    if options.stderr:
        print(options.stderr, file=sys.stderr, flush=True)
    if options.exits is not None:
        sys.exit(options.exits)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while options.silent:
        signal.pause()

    def write(message: Any) -> None:
        if options.noise:
            print("DEBUG: about to answer\n\n{not json", flush=True)
        print(json.dumps(message), flush=True)

    for line in sys.stdin:
        hostile.on_message(json.loads(line), write)
    while options.stubborn:
        signal.pause()


def serve_http(hostile: Hostile, port: int) -> None:
    session = os.urandom(8).hex()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            message = json.loads(body)
            known = self.headers.get("mcp-session-id")
            if known is not None and known != session:
                self._answer(404, b"", "text/plain")
                return
            if hostile.options.status and message.get("method") == "tools/call":
                self._answer(hostile.options.status, b"no", "text/plain")
                return
            written: list[Any] = []
            hostile.on_message(message, written.append)
            if message.get("method") == "tools/call" and not written:
                select.select([], [], [])
            elif written:
                self._answer(200, json.dumps(written[-1]).encode(), "application/json")
            else:
                self._answer(202, b"", "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("mcp-session-id", session)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer(405, b"", "text/plain")

        def do_DELETE(self) -> None:
            hostile.heard({"method": "deleted"})
            self._answer(200, b"", "text/plain")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    parser.add_argument("--exits", type=int)
    parser.add_argument("--status", type=int)
    parser.add_argument("--stderr", default="")
    parser.add_argument("--polls", type=int, default=-1)
    for flag in ("modern", "silent", "noise", "stubborn", "endless"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = parser.parse_args()
    hostile = Hostile(options)
    if options.http is None:
        serve_stdio(hostile)
    else:
        serve_http(hostile, options.http)


if __name__ == "__main__":
    main()
