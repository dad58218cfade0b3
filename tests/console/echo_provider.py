"""A provider on loopback whose model repeats what it was asked, and by which name.

`python -m tests.console.echo_provider` prints its port.
"""

import json
from http.server import ThreadingHTTPServer

from tests.fake_openai import ChatCompletions


class Echo(ChatCompletions):
    """Answers each request with the request."""

    def do_POST(self) -> None:  # noqa: N802 (the name of the library)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        heard = json.dumps({"model": asked["model"], "messages": asked["messages"]})
        self.answer({"role": "assistant", "content": heard}, asked["model"])


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
