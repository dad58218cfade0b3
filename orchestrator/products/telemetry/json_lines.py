"""Log records as JSON, one on each line, with the session, the task and the trace of each."""

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.agents.current_span import current_traceparent
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.secret_variables import secret_values
from orchestrator.agents.tools.current_call import current_call_key
from orchestrator.delegation.session_context import session_strings

FIELDS: Final = ("session", "task", "path", "agent", "trace_id", "span_id")


class JsonLines(logging.Formatter):
    """A formatter for any handler: `handler.setFormatter(JsonLines())`.

    It removes the secrets of the environment, and all that looks like one. A record of a tool gets
    the session and the task of its call.
    """

    def __init__(self) -> None:
        super().__init__()
        self._redactor = Redactor(secret_values(os.environ))

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        around = _context()
        for name in FIELDS:
            if value := getattr(record, name, None) or around.get(name):
                line[name] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        elif record.exc_text:
            line["error"] = record.exc_text
        for name in ("message", "error"):
            if name in line:
                line[name] = self._redactor.redact(line[name])
        return json.dumps(line, ensure_ascii=False, default=str)


def _context() -> dict[str, str | None]:
    """Return the session, the task and the span of the step that runs here."""
    key = current_call_key()
    _, _, trace = current_traceparent().partition("-")
    return {
        "session": session_strings().get("session_id"),
        "task": None if key is None else key.partition("/")[0],
        "trace_id": trace[:32],
        "span_id": trace[33:49],
    }
