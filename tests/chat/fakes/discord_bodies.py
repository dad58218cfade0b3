"""The request bodies that the fake Discord accepts, and its refusals.

Stricter than Discord in one thing: a field that it does not know is refused, where Discord ignores
it. A misspelled field is found so.
"""

import re
from collections.abc import Iterable, Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final

import attrs

SNOWFLAKE: Final = re.compile(r"[0-9]{1,20}")
LARGEST_FILE: Final = 10 * 1024 * 1024
MESSAGE_FIELDS: Final = {
    "content": str,
    "nonce": (str, int),
    "tts": bool,
    "embeds": list,
    "allowed_mentions": dict,
    "message_reference": dict,
    "components": list,
    "sticker_ids": list,
    "attachments": list,
    "flags": int,
    "enforce_nonce": bool,
    "poll": dict,
}
EDIT_FIELDS: Final = {
    "tts": bool,  # discord.py sends it, and Discord ignores it
    "content": str,
    "embeds": list,
    "flags": int,
    "allowed_mentions": dict,
    "components": list,
    "attachments": list,
}
SETTABLE_FLAGS: Final = 1 << 2 | 1 << 12 | 1 << 13 | 1 << 15
EPHEMERAL: Final = 1 << 6
SYSTEM_TYPES: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 18, 21})


class RefusedError(Exception):
    """Discord says no."""

    def __init__(self, status: int, code: int, message: str, **errors: tuple[str, str]) -> None:
        super().__init__(f"{status} {code} {message} {errors}")
        self.status = status
        self.body: dict[str, Any] = {"message": message, "code": code}
        if errors:
            self.body["errors"] = {
                field: {"_errors": [{"code": kind, "message": why}]}
                for field, (kind, why) in errors.items()
            }


def bad_form(field: str, kind: str, why: str) -> RefusedError:
    return RefusedError(400, 50035, "Invalid Form Body", **{field: (kind, why)})


@attrs.frozen
class SentFile:
    name: str
    content: bytes


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def read_multipart(content_type: str, body: bytes) -> tuple[bytes, dict[int, SentFile]]:
    """Return the `payload_json` and the files of a multipart body."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    parsed = BytesParser(policy=HTTP).parsebytes(head + body)
    payload, files = b"{}", dict[int, SentFile]()
    for part in parsed.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if name == "payload_json":
            payload = content
        elif found := re.fullmatch(r"files\[(\d+)\]", str(name)):
            files[int(found.group(1))] = SentFile(part.get_filename() or "", content)
        else:
            raise bad_form(str(name), "UNKNOWN_PART", "is no part of a message")
    return payload, files


def check_message(
    body: Mapping[str, Any], files: Mapping[int, SentFile], *, is_followup: bool = False
) -> None:
    """Refuse a new message that Discord would refuse, before it looks at the channel."""
    check_fields(body, MESSAGE_FIELDS)
    content = body.get("content") or ""
    if units(content) > 2000:
        raise bad_form("content", "BASE_TYPE_MAX_LENGTH", "Must be 2000 or fewer in length.")
    if isinstance(nonce := body.get("nonce"), str) and len(nonce) > 25:
        raise bad_form("nonce", "NONCE_TYPE_TOO_LONG", "Must be 25 or fewer in length.")
    check_mentions(body.get("allowed_mentions") or {})
    check_components(body.get("components") or ())
    allowed = SETTABLE_FLAGS | (EPHEMERAL if is_followup else 0)
    if (body.get("flags") or 0) & ~allowed:
        raise bad_form("flags", "BITFIELD_INVALID", "Cannot be set.")
    for it in body.get("attachments") or ():
        if int(it["id"]) not in files:
            raise bad_form("attachments", "ATTACHMENT_NOT_FOUND", "Is not uploaded.")
    if len(files) > 10:
        raise bad_form("files", "BASE_TYPE_MAX_LENGTH", "Must be 10 or fewer.")
    if any(len(it.content) > LARGEST_FILE for it in files.values()):
        raise RefusedError(413, 40005, "Request entity too large")
    if not (content.strip() or files or body.get("embeds") or body.get("sticker_ids")):
        raise RefusedError(400, 50006, "Cannot send an empty message")


def check_edit(body: Mapping[str, Any]) -> None:
    check_fields(body, EDIT_FIELDS)
    if units(body.get("content") or "") > 2000:
        raise bad_form("content", "BASE_TYPE_MAX_LENGTH", "Must be 2000 or fewer in length.")
    check_mentions(body.get("allowed_mentions") or {})
    check_components(body.get("components") or ())


def check_fields(body: object, fields: Mapping[str, Any]) -> None:
    if not isinstance(body, dict):
        raise RefusedError(400, 50109, "The request body contains invalid JSON.")
    for name, value in body.items():
        if name not in fields:
            raise bad_form(name, "UNKNOWN_FIELD", "is no field of this request")
        is_right = value is None or isinstance(value, fields[name])
        if not is_right or (isinstance(value, bool) and fields[name] is int):
            raise bad_form(name, "BASE_TYPE_BAD", "has the wrong type")


def check_mentions(allowed: Mapping[str, Any]) -> None:
    types = {"parse": list, "users": list, "roles": list, "replied_user": bool}
    check_fields(allowed, types)
    parse = set(allowed.get("parse") or ())
    if parse - {"roles", "users", "everyone"}:
        raise bad_form("allowed_mentions", "BASE_TYPE_CHOICES", "is no kind of mention")
    for kind in parse & {"users", "roles"}:
        if allowed.get(kind):
            raise bad_form(
                "allowed_mentions",
                "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE",
                f"parse:{kind} and {kind} exclude each other",
            )


def check_components(rows: Iterable[Mapping[str, Any]]) -> None:
    rows = list(rows)
    if len(rows) > 5:
        raise bad_form("components", "BASE_TYPE_BAD_LENGTH", "Must be 1 to 5 rows.")
    seen: set[str] = set()
    for row in rows:
        buttons = row.get("components", [])
        if row.get("type") != 1 or not 1 <= len(buttons) <= 5:
            raise bad_form("components", "BASE_TYPE_BAD_LENGTH", "1 to 5 in a row.")
        for button in buttons:
            id_, label = button.get("custom_id", ""), button.get("label", "")
            if button.get("type") != 2 or button.get("style") not in range(1, 5):
                raise bad_form("components", "BASE_TYPE_CHOICES", "is no button")
            if not 1 <= len(id_) <= 100 or not 1 <= len(label) <= 80:
                raise bad_form("components", "BASE_TYPE_BAD_LENGTH", "is too long")
            if id_ in seen:
                raise bad_form("components", "COMPONENT_CUSTOM_ID_DUPLICATED", "must be unique")
            seen.add(id_)


def pinged(content: str, allowed: Mapping[str, Any] | None, replied: str | None) -> set[str]:
    """Return whom a message calls for: ids of people and roles, or `everyone`."""
    mentioned = set(re.findall(r"<@!?(\d+)>", content))
    roles = set(re.findall(r"<@&(\d+)>", content))
    everyone = {"everyone"} if re.search(r"@(everyone|here)", content) else set()
    if allowed is None:
        return mentioned | roles | everyone | ({replied} if replied else set())
    parse = set(allowed.get("parse") or ())
    found: set[str] = set()
    if replied and allowed.get("replied_user"):
        found.add(replied)
    found |= mentioned if "users" in parse else mentioned & {*allowed.get("users", ())}
    found |= roles if "roles" in parse else roles & {*allowed.get("roles", ())}
    return found | (everyone if "everyone" in parse else set())
