"""Agents over HTTP: OpenAI's protocols, and an API of runs, tasks and sessions.

**Access.** A key makes a request. Its scope admits it to a route, and its owner to sessions,
which record their owner in the fact that opened them. A session of another owner looks like a
missing one.

**Sessions.** Each request that runs an agent opens a session. A chat completion belongs to its
request: if the client hangs up, its tree is cancelled and joined. Stored work belongs to the
server. The terms of an answer (`AnswerTerms`: model settings, a schema) come with a message and
hold until the next one.

**Routes.** A route is one value with its path, bodies and handler. The application and
`/openapi.json` are made from the same table (`app.py`), so they cannot differ.

**Transport.** A connection is two trio tasks: one reads, one runs the application
(`transport/http11.py`), and h11 knows the protocol. A reader gets a fact when it is durable. A
reader that takes nothing for half a minute is disconnected, and resumes by the number of its last
fact. A server has one `ServedJournal` for each journal that it holds; `cluster/` forwards
requests for the others. A lost journal ends its own streams and no others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.products.server.server import Server, open_server
    from orchestrator.products.server.state import Settings
    from orchestrator.products.server.transport.listener import Listening
    from orchestrator.products.server.webhook import webhook_signature
else:
    # Imported on demand: the modules of this package import each other by name.
    from orchestrator.late_call import late_names

    __getattr__ = late_names(
        __name__,
        {
            f"{__name__}.server": "Server open_server",
            f"{__name__}.state": "Settings",
            f"{__name__}.transport.listener": "Listening",
            f"{__name__}.webhook": "webhook_signature",
        },
    )

__all__ = ["Listening", "Server", "Settings", "open_server", "webhook_signature"]
