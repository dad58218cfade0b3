"""The methods of Slack's Web API that a bot calls, and which arguments they take.

Names and types are those of docs.slack.dev. Slack itself ignores what it does not know; here that
is refused, because it would be our mistake.
"""

import json
from typing import Any
from urllib.parse import parse_qsl

import attrs


class ArgumentError(Exception):
    """Slack refuses the arguments of a call."""

    def __init__(self, message: str, code: str = "invalid_arguments") -> None:
        super().__init__(message)
        self.code = code


@attrs.frozen
class Method:
    """One method: `required` and `optional` name arguments and their types."""

    required: dict[str, type] = attrs.field(factory=dict)
    optional: dict[str, type] = attrs.field(factory=dict)
    token: str = "xoxb-"
    """With what its tokens begin."""
    is_form_only: bool = False
    """Whether it takes no JSON: so are the methods that only read."""


_SHOWN = {
    "text": str,
    "blocks": list,
    "attachments": list,
    "as_user": bool,
    "link_names": bool,
    "markdown_text": str,
    "parse": str,
}
_FACE = {"icon_emoji": str, "icon_url": str, "username": str}
METHODS = {
    "api.test": Method(optional={"error": str, "foo": str}, token=""),
    "auth.test": Method(),
    "apps.connections.open": Method(token="xapp-"),
    "assistant.threads.setStatus": Method(
        {"channel_id": str, "thread_ts": str, "status": str}, {"loading_messages": list, **_FACE}
    ),
    "chat.postMessage": Method(
        {"channel": str},
        {
            **_SHOWN,
            **_FACE,
            "thread_ts": str,
            "reply_broadcast": bool,
            "unfurl_links": bool,
            "unfurl_media": bool,
            "mrkdwn": bool,
            "metadata": dict,
        },
    ),
    "chat.postEphemeral": Method(
        {"channel": str, "user": str}, {**_SHOWN, **_FACE, "thread_ts": str}
    ),
    "chat.update": Method(
        {"channel": str, "ts": str},
        {**_SHOWN, "file_ids": list, "metadata": dict, "reply_broadcast": bool},
    ),
    "conversations.history": Method(
        {"channel": str},
        {
            "cursor": str,
            "include_all_metadata": bool,
            "inclusive": bool,
            "latest": str,
            "limit": int,
            "oldest": str,
        },
        is_form_only=True,
    ),
    "conversations.replies": Method(
        {"channel": str, "ts": str},
        {
            "cursor": str,
            "include_all_metadata": bool,
            "inclusive": bool,
            "latest": str,
            "limit": int,
            "oldest": str,
        },
        is_form_only=True,
    ),
    "conversations.info": Method(
        {"channel": str}, {"include_locale": bool, "include_num_members": bool}, is_form_only=True
    ),
    "files.completeUploadExternal": Method(
        {"files": list},
        {
            "channel_id": str,
            "channels": str,
            "initial_comment": str,
            "thread_ts": str,
            "blocks": list,
        },
    ),
    "files.getUploadURLExternal": Method(
        {"filename": str, "length": int}, {"alt_txt": str, "snippet_type": str}, is_form_only=True
    ),
    "files.info": Method(
        {"file": str}, {"count": int, "cursor": str, "limit": int, "page": int}, is_form_only=True
    ),
    "users.info": Method({"user": str}, {"include_locale": bool}, is_form_only=True),
}


def read_arguments(method: Method, media_type: str, query: str, body: bytes) -> dict[str, Any]:
    """Return the arguments of a call, each of its type."""
    kind, _, parameters = (part.strip() for part in media_type.partition(";"))
    charset = parameters.lower().removeprefix("charset=").strip('"')
    if charset not in {"", "utf-8", "iso-8859-1"}:
        raise ArgumentError(f"no such charset: {charset}", "invalid_charset")
    found: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    if kind == "application/json":
        if method.is_form_only and body not in {b"", b"{}"}:
            raise ArgumentError("this method takes a form", "invalid_post_type")
        try:
            found |= json.loads(body or b"{}")
        except ValueError:
            raise ArgumentError("no JSON", "invalid_json") from None
    elif kind == "application/x-www-form-urlencoded" or not body:
        fields = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body))
        if len({name for name, _ in fields}) < len(fields):
            raise ArgumentError("an argument is there twice", "invalid_form_data")
        found |= dict(fields)
    else:
        raise ArgumentError(f"no such body: {kind}", "invalid_post_type")
    # Each method takes these: tokens may be of several workspaces.
    for name in ("token", "team_id"):
        found.pop(name, None)
    _check(method, found)
    return found


def _typed(method: Method, name: str, text: str) -> Any:
    kind = {**method.required, **method.optional}.get(name, str)
    if kind is str:
        return text
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text, text)
    try:
        return json.loads(text)
    except ValueError:
        code = "invalid_blocks_format" if name == "blocks" else "invalid_arguments"
        raise ArgumentError(f"no JSON: {name}", code) from None


def _check(method: Method, found: dict[str, Any]) -> None:
    kinds = {**method.required, **method.optional}
    for name, value in found.items():
        if name not in kinds:
            raise ArgumentError(f"[ERROR] no such argument: {name}")
        kind = kinds[name]
        # A text that is no text is read as what it says, also in JSON and in a query.
        if isinstance(value, str):
            found[name] = _typed(method, name, value)
        if type(found[name]) is not kind:
            raise ArgumentError(f"[ERROR] must be {kind.__name__}: {name}")
    for name in method.required:
        if name not in found or found[name] == "":
            raise ArgumentError(f"[ERROR] missing required field: {name}")
