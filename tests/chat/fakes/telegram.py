"""A Telegram on loopback: it refuses what the real one refuses, and fails on demand.

Each request is checked against the published methods and types of the Bot API
(`telegram_bot_api.json`), and so is each update that is made here. Run as a process of its own
(`python -m tests.chat.fakes.telegram`) it prints its address.
"""

import email.parser
import email.policy
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs
import httpx2
import trio

from tests.chat.fakes.http import HangUpError, Request, Response, json_response, serve_http

TOKEN: Final = "42:AAF-fake_token_of_a_bot_that_is_not"
BOT: Final = {
    "id": 42,
    "is_bot": True,
    "first_name": "Helper",
    "username": "helper_bot",
    "can_join_groups": True,
    "can_read_all_group_messages": False,
    "supports_inline_queries": False,
}
LARGEST_FILE: Final = 20_000_000
GROUP_MESSAGES: Final = 20
GENERAL: Final = 1
"""The thread id of the topic General, which cannot be sent to by its id."""


class RefusedRequestError(Exception):
    """The error of a method."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


@attrs.frozen
class Fault:
    """The fault of a call of a method."""

    code: int = 0
    """The error that it gets; 0 closes the connection."""
    description: str = "made to fail"
    retry_after: int | None = None
    is_done: bool = False
    """It is done nevertheless, and only the answer is lost."""


@attrs.frozen
class UploadedFile:
    name: str
    content: bytes


PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "String": (str,),
    "Boolean": (bool,),
    "Float": (int, float),
    "Integer": (int,),
    "InputFile": (UploadedFile,),
}


class BotApi:
    """The published methods and types."""

    def __init__(self) -> None:
        path = Path(__file__).with_name("telegram_bot_api.json")
        found = json.loads(path.read_text())
        self.methods: Mapping[str, Mapping[str, str]] = found["methods"]
        self.types: Mapping[str, Any] = found["types"]

    def check_call(self, method: str, fields: Mapping[str, Any]) -> None:
        """Raise `RefusedRequestError` unless a request is one that is published."""
        self._check_fields(f"{method}", self.methods[method], fields)

    def check(self, type_: str, value: Any) -> None:
        """Raise `RefusedRequestError` unless a value has a published type."""
        self._check_types(type_, type_, value)

    def _check_fields(self, where: str, known: Mapping[str, str], given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in known:
                raise RefusedRequestError(400, f"Bad Request: {where} has no {name}")
        for name, types in known.items():
            if name in given:
                self._check_types(f"{where}.{name}", types.rstrip("!"), given[name])
            elif types.endswith("!"):
                raise RefusedRequestError(400, f"Bad Request: {where}.{name} is empty")

    def _check_types(self, where: str, types: str, value: Any) -> None:
        problems: list[RefusedRequestError] = []
        for type_ in types.split("|"):
            try:
                self._check_type(where, type_, value)
            except RefusedRequestError as exc:
                problems.append(exc)
            else:
                return
        raise problems[0]

    def _check_type(self, where: str, type_: str, value: Any) -> None:
        wrong = RefusedRequestError(400, f"Bad Request: {where} is no {type_}")
        if type_.startswith("Array of "):
            if not isinstance(value, list):
                raise wrong
            for index, item in enumerate(value):
                inner = type_.removeprefix("Array of ")
                self._check_type(f"{where}[{index}]", inner, item)
            return
        if type_ in PLAIN:
            if type(value) not in PLAIN[type_]:
                raise wrong
        elif isinstance(self.types[type_], list):
            self._check_types(where, "|".join(self.types[type_]), value)
        elif not isinstance(value, dict):
            raise wrong
        else:
            self._check_fields(where, self.types[type_], value)


@attrs.define
class FakeChat:
    id: int
    type: str = "private"
    title: str = ""
    topics: set[int] = attrs.field(factory=set)
    is_blocked: bool = False
    moved_to: int | None = None
    messages: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    times: deque[float] = attrs.field(factory=lambda: deque(maxlen=GROUP_MESSAGES))

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "type": self.type}
        if self.type == "private":
            return found | {"first_name": self.title or f"Person {self.id}"}
        return found | {"title": self.title or f"Group {-self.id}"}


class FakeTelegram:
    """One bot, its chats, and what is said in them."""

    def __init__(self, *, first_update: int = 1000) -> None:
        self.address = ""
        self.api = BotApi()
        self.chats: dict[int, FakeChat] = {}
        self.sent: list[dict[str, Any]] = []
        """The messages of the bot, as Telegram has them."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """All requests but those that poll."""
        self._handled: list[tuple[str, dict[str, Any]]] = []
        """The same requests, once they had their effect."""
        self.faults: dict[str, deque[Fault]] = {}
        self.presses: dict[str, str] = {}
        """The bot's answer to each press of a button."""
        self.files: dict[str, bytes] = {}
        self.is_revoked = False
        self.webhook: dict[str, Any] = {}
        self._updates: deque[dict[str, Any]] = deque()
        self._allowed: frozenset[str] = frozenset()
        """The kinds of updates that the bot wants; none is all."""
        self._next_update = first_update
        self._next_message = 1
        self._changed = trio.Event()
        self._poller: trio.CancelScope | None = None
        self.history: list[dict[str, Any]] = []
        """All updates."""
        self._again: list[dict[str, Any]] = []
        """The updates that are sent again, even if they were acknowledged."""
        self._sent_again: list[dict[str, Any]] = []

    # What people do.

    def chat(self, id_: int, **given: Any) -> FakeChat:
        """Return a chat; a negative id is a group."""
        if id_ not in self.chats:
            kind = "private" if id_ > 0 else "supergroup"
            self.chats[id_] = FakeChat(id_, **{"type": kind, **given})
        return self.chats[id_]

    def say(
        self,
        text: str = "",
        *,
        user: int = 7,
        chat: int | None = None,
        topic: int | None = None,
        reply_to: int | None = None,
        **fields: Any,
    ) -> int:
        """Let a person write, and return the id of the message."""
        where = self.chat(user if chat is None else chat)
        message = self._message(where, user, topic)
        message |= fields
        if text:
            message["text"] = text
            message |= _entities(text)
        if reply_to is not None:
            replied = where.messages[reply_to]
            message["reply_to_message"] = {
                key: value for key, value in replied.items() if key != "reply_to_message"
            }
            if topic is None and where.type != "private":
                # A chain of replies has the id of a thread, and is no topic.
                message["message_thread_id"] = reply_to
        where.messages[message["message_id"]] = message
        self._add_update(message=message)
        return int(message["message_id"])

    def edit(self, message: int, text: str, *, user: int = 7) -> None:
        """Let a person edit a message."""
        found = {**self.chat(user).messages[message], "text": text}
        self._add_update(edited_message=found | {"edit_date": int(time.time())})

    def press(self, message: int, data: str, *, user: int = 7, chat: int = 7) -> str:
        """Let a person press a button, and return the id of the press."""
        id_ = f"press-{self._next_update}"
        found = self.chat(chat).messages[message]
        self._add_update(
            callback_query={
                "id": id_,
                "from": _user(user),
                "message": found,
                "chat_instance": "1",
                "data": data,
            }
        )
        return id_

    def migrate(self, chat: int, new: int) -> None:
        """Let a group become a supergroup."""
        self.chat(chat).moved_to = new
        self.chat(new)
        message = self._message(self.chat(chat), 7, None)
        self._add_update(message=message | {"migrate_to_chat_id": new})

    def add_file(self, name: str, content: bytes, *, size: int | None = None) -> Any:
        """Return a document that a person can send with a message."""
        id_ = f"file-{len(self.files)}"
        self.files[id_] = content
        return {
            "file_id": id_,
            "file_unique_id": id_,
            "file_name": name,
            "mime_type": "image/png" if name.endswith(".png") else "text/plain",
            "file_size": len(content) if size is None else size,
        }

    def send_last_again(self) -> None:
        """Send the last update once more, though it may be acknowledged."""
        self.send_again(self.history[-1])

    def send_again(self, *updates: dict[str, Any]) -> None:
        """Send updates once more, as if they were not acknowledged."""
        self._again += updates
        self._notify()

    def fail(self, method: str, *faults: Fault) -> None:
        """Let the next calls of a method fail."""
        self.faults.setdefault(method, deque()).extend(faults)

    def texts(self, chat: int | None = None) -> list[str]:
        """Return what the bot has said."""
        return [it["text"] for it in self.sent if "text" in it and chat in {None, it["chat"]["id"]}]

    async def wait_sent(self, count: int) -> list[str]:
        """Wait until the bot has sent so many messages, and return their texts."""
        while len(self.sent) < count:
            await self._changed.wait()
        return self.texts()

    async def wait_called(self, method: str, count: int = 1) -> dict[str, Any]:
        """Wait for the effect of a number of calls of a method, and return the last fields."""
        while len(found := [it for name, it in self._handled if name == method]) < count:
            await self._changed.wait()
        return found[count - 1]

    async def wait_heard(self) -> None:
        """Wait until all updates are acknowledged."""
        while self.unheard:
            await self._changed.wait()

    @property
    def unheard(self) -> int:
        """How many updates are not acknowledged."""
        return len(self._updates) + len(self._again) + len(self._sent_again)

    # The server.

    @asynccontextmanager
    async def open(self, *, port: int = 0) -> AsyncGenerator["FakeTelegram"]:
        # On a jumping clock a test that waits for nothing fails, after some thousand polls.
        with trio.fail_after(2 * 86_400):
            async with (
                trio.open_nursery() as nursery,
                serve_http(self._answer, port=port) as self.address,
            ):
                nursery.start_soon(self._call_webhook_forever)
                yield self
                nursery.cancel_scope.cancel()

    async def _answer(self, request: Request) -> Response:
        url = urlsplit(unquote(request.target))
        if url.path.startswith("/control/"):
            return await self._control(url.path, request)
        if url.path.startswith(f"/file/bot{TOKEN}/"):
            content = self.files.get(url.path.rpartition("/")[2], b"")
            return Response(200 if content else 404, content, "application/octet-stream")
        bot, _, method = url.path.removeprefix("/bot").partition("/")
        if bot != TOKEN or self.is_revoked:
            return _refusal(RefusedRequestError(401, "Unauthorized"))
        known = {name.lower(): name for name in self.api.methods}
        name = known.get(method.lower())
        if name is None or request.method not in {"GET", "POST"}:
            return _refusal(RefusedRequestError(404, "Not Found"))
        try:
            fields = _fields(request, self.api.methods[name])
            self.api.check_call(name, fields)
            return await self._call(name, fields)
        except RefusedRequestError as exc:
            return _refusal(exc)
        finally:
            self._notify()

    async def _call(self, name: str, fields: dict[str, Any]) -> Response:
        if name == "getUpdates":
            return await self._handle(name, fields)
        self.calls.append((name, fields))
        try:
            return await self._handle(name, fields)
        finally:
            self._handled.append((name, fields))

    async def _handle(self, name: str, fields: dict[str, Any]) -> Response:
        faults = self.faults.get(name)
        fault = faults.popleft() if faults else None
        if fault is not None and not fault.is_done:
            if not fault.code:
                raise HangUpError
            extra = {} if fault.retry_after is None else {"retry_after": fault.retry_after}
            raise RefusedRequestError(fault.code, fault.description, **extra)
        handler = getattr(self, f"_on_{name.lower()}", None)
        if handler is None:
            raise RefusedRequestError(501, f"this fake has no {name}")
        result = await handler(**fields)
        if fault is not None:
            raise HangUpError
        return json_response({"ok": True, "result": result})

    async def _control(self, path: str, request: Request) -> Response:
        """Do what a test in another process asks for."""
        await trio.lowlevel.checkpoint()
        given = json.loads(request.body or b"{}")
        result: Any = None
        match path.removeprefix("/control/"):
            case "say":
                result = self.say(**given)
            case "press":
                result = self.press(**given)
            case "file":
                result = self.add_file(given["name"], given["text"].encode())
            case "fail":
                self.fail(given.pop("method"), Fault(**given))
            case "block":
                self.chat(given["chat"]).is_blocked = True
            case "sent":
                result = {"sent": self.sent, "unheard": self.unheard}
            case _:
                return Response(404)
        return json_response(result)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _add_update(self, **given: Any) -> None:
        update = {"update_id": self._next_update, **given}
        self.api.check("Update", update)
        self._next_update += 1
        self.history.append(update)
        if self._allowed and self._allowed.isdisjoint(given):
            return
        self._updates.append(update)
        self._notify()

    def _message(self, chat: FakeChat, user: int, topic: int | None) -> dict[str, Any]:
        id_ = self._next_message
        self._next_message += 1
        message: dict[str, Any] = {
            "message_id": id_,
            "date": int(time.time()),
            "chat": chat.shown(),
            "from": _user(user),
        }
        if topic is not None:
            chat.topics.add(topic)
            message |= {"message_thread_id": topic, "is_topic_message": True}
        return message

    # The methods.

    async def _on_getme(self) -> Any:
        await trio.lowlevel.checkpoint()
        return BOT

    async def _on_getupdates(
        self,
        offset: int = 0,
        limit: int = 100,
        timeout: int = 0,  # noqa: ASYNC109 (it is a field of the method)
        allowed_updates: list[str] | None = None,
    ) -> Any:
        if self.webhook.get("url"):
            raise RefusedRequestError(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use"
                " deleteWebhook to delete the webhook first",
            )
        self._allow(allowed_updates)
        if self._poller is not None:
            # As the real one: the earlier poll is told.
            self._poller.cancel()
        scope = self._poller = trio.CancelScope()
        with scope:
            while self._updates and self._updates[0]["update_id"] < offset:
                self._updates.popleft()
            self._sent_again.clear()
            self._notify()
            with trio.move_on_after(timeout):
                while not self._wanted():
                    await self._changed.wait()
            await trio.lowlevel.checkpoint()
            found = self._wanted()[: min(limit, 100)]
            self._sent_again, self._again = self._again, []
            self._poller = None
            return found
        raise RefusedRequestError(
            409,
            "Conflict: terminated by other getUpdates request; make sure that only one bot"
            " instance is running",
        )

    def _wanted(self) -> list[dict[str, Any]]:
        return [*self._again, *self._updates]

    def _allow(self, kinds: list[str] | None) -> None:
        """Keep updates of these kinds only, from now on; None is as before."""
        if kinds is not None:
            self._allowed = frozenset(kinds)

    async def _on_setwebhook(self, url: str, **given: Any) -> Any:
        await trio.lowlevel.checkpoint()
        secret = given.get("secret_token", "")
        if secret and not all(it.isalnum() or it in "-_" for it in secret):
            raise RefusedRequestError(
                400, "Bad Request: secret token contains unallowed characters"
            )
        self._allow(given.get("allowed_updates"))
        self.webhook = {"url": url, **given}
        return True

    async def _on_deletewebhook(self, drop_pending_updates: bool = False) -> Any:
        await trio.lowlevel.checkpoint()
        self.webhook = {}
        if drop_pending_updates:
            self._updates.clear()
        return True

    async def _on_getwebhookinfo(self) -> Any:
        await trio.lowlevel.checkpoint()
        return {
            "url": self.webhook.get("url", ""),
            "has_custom_certificate": False,
            "pending_update_count": len(self._updates),
        }

    async def _on_sendmessage(self, text: str, **given: Any) -> Any:
        message = await self._new_message(**given)
        if not text.strip():
            raise RefusedRequestError(400, "Bad Request: message text is empty")
        if _units(text) > 4096:
            raise RefusedRequestError(400, "Bad Request: message is too long")
        entities = given.get("entities", [])
        _check_entities(text, entities)
        message["text"] = text
        if entities:
            message["entities"] = entities
        return self._keep(message)

    async def _on_senddocument(self, document: Any, **given: Any) -> Any:
        message = await self._new_message(**given)
        if not isinstance(document, UploadedFile):
            raise RefusedRequestError(400, "Bad Request: wrong file identifier")
        id_ = f"file-{len(self.files)}"
        self.files[id_] = document.content
        message["document"] = {
            "file_id": id_,
            "file_unique_id": id_,
            "file_name": document.name,
            "file_size": len(document.content),
        }
        return self._keep(message)

    async def _on_sendchataction(
        self, chat_id: Any, action: str, message_thread_id: int | None = None
    ) -> Any:
        await trio.lowlevel.checkpoint()
        chat = self._chat(chat_id)
        self._require_topic(chat, message_thread_id)
        if action not in {"typing", "upload_document", "upload_photo"}:
            raise RefusedRequestError(400, "Bad Request: wrong parameter action")
        return True

    async def _on_editmessagetext(
        self, chat_id: Any = 0, message_id: int = 0, text: str = "", **given: Any
    ) -> Any:
        await trio.lowlevel.checkpoint()
        found = self._chat(chat_id).messages.get(message_id)
        if found is None:
            raise RefusedRequestError(400, "Bad Request: message to edit not found")
        changed = {**found, "text": text, "edit_date": int(time.time())}
        changed.pop("reply_markup", None)
        if given.get("reply_markup"):
            changed["reply_markup"] = given["reply_markup"]
        if {**changed, "edit_date": 0} == {**found, "edit_date": 0}:
            raise RefusedRequestError(
                400,
                "Bad Request: message is not modified: specified new message content and"
                " reply markup are exactly the same as a current content and reply markup"
                " of the message",
            )
        found.clear()
        found.update(changed)
        return found

    async def _on_answercallbackquery(
        self, callback_query_id: str, text: str = "", **given: Any
    ) -> Any:
        await trio.lowlevel.checkpoint()
        if not callback_query_id.startswith("press-"):
            raise RefusedRequestError(
                400,
                "Bad Request: query is too old and response timeout expired or query ID is invalid",
            )
        if len(text) > 200:
            raise RefusedRequestError(400, "Bad Request: MESSAGE_TOO_LONG")
        self.presses[callback_query_id] = text
        return True

    async def _on_getfile(self, file_id: str) -> Any:
        await trio.lowlevel.checkpoint()
        if file_id not in self.files:
            raise RefusedRequestError(
                400, "Bad Request: wrong file_id or the file is temporarily unavailable"
            )
        size = len(self.files[file_id])
        if size > LARGEST_FILE:
            raise RefusedRequestError(400, "Bad Request: file is too big")
        return {
            "file_id": file_id,
            "file_unique_id": file_id,
            "file_size": size,
            "file_path": f"documents/{file_id}",
        }

    async def _new_message(self, chat_id: Any, **given: Any) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        chat = self._chat(chat_id)
        topic = given.get("message_thread_id")
        self._require_topic(chat, topic)
        message = self._message(chat, BOT["id"], topic)  # type: ignore[arg-type]
        message["from"] = {key: BOT[key] for key in ("id", "is_bot", "first_name")}
        message["from"]["username"] = BOT["username"]
        reply = given.get("reply_parameters")
        if reply is not None:
            replied = chat.messages.get(reply["message_id"])
            if replied is not None:
                message["reply_to_message"] = {
                    key: value for key, value in replied.items() if key != "reply_to_message"
                }
            elif not reply.get("allow_sending_without_reply"):
                raise RefusedRequestError(400, "Bad Request: message to be replied not found")
        for row in given.get("reply_markup", {}).get("inline_keyboard", []):
            for button in row:
                if not 1 <= len(button.get("callback_data", "-").encode()) <= 64:
                    raise RefusedRequestError(400, "Bad Request: BUTTON_DATA_INVALID")
        if given.get("reply_markup"):
            message["reply_markup"] = given["reply_markup"]
        self._count(chat)
        return message

    def _count(self, chat: FakeChat) -> None:
        now = trio.current_time()
        if chat.type == "private":
            return
        full = len(chat.times) == GROUP_MESSAGES
        if full and chat.times[0] > now - 59:
            seconds = int(chat.times[0] + 60 - now) + 1
            raise RefusedRequestError(
                429, f"Too Many Requests: retry after {seconds}", retry_after=seconds
            )
        chat.times.append(now)

    def _keep(self, message: dict[str, Any]) -> dict[str, Any]:
        self.api.check("Message", message)
        self.chats[message["chat"]["id"]].messages[message["message_id"]] = message
        self.sent.append(message)
        return message

    def _chat(self, chat_id: Any) -> FakeChat:
        try:
            chat = self.chats[int(chat_id)]
        except (KeyError, ValueError):
            raise RefusedRequestError(400, "Bad Request: chat not found") from None
        if chat.moved_to is not None:
            raise RefusedRequestError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=chat.moved_to,
            )
        if chat.is_blocked:
            raise RefusedRequestError(403, "Forbidden: bot was blocked by the user")
        return chat

    def _require_topic(self, chat: FakeChat, topic: int | None) -> None:
        if topic is not None and topic not in chat.topics:
            raise RefusedRequestError(400, "Bad Request: message thread not found")

    # The webhook.

    async def _call_webhook_forever(self) -> None:
        async with httpx2.AsyncClient() as client:
            while True:
                waiting = self._again or self._updates
                if not self.webhook.get("url") or not waiting:
                    await self._changed.wait()
                    continue
                update = waiting[0]
                secret = self.webhook.get("secret_token")
                headers = {"x-telegram-bot-api-secret-token": secret} if secret else {}
                try:
                    answer = await client.post(
                        self.webhook["url"], json=update, headers=headers, timeout=60
                    )
                except httpx2.HTTPError:
                    await trio.sleep(1)
                    continue
                if answer.status_code != 200:
                    await trio.sleep(1)
                    continue
                waiting.remove(update)
                self._notify()


def _refusal(exc: RefusedRequestError) -> Response:
    body: dict[str, Any] = {"ok": False, "error_code": exc.code, "description": exc.description}
    if exc.parameters:
        body["parameters"] = exc.parameters
    return json_response(body, exc.code)


def _fields(request: Request, known: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a request, in whatever form it has them."""
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        try:
            found = json.loads(request.body)
        except ValueError:
            raise RefusedRequestError(400, "Bad Request: can't parse JSON") from None
        if not isinstance(found, dict):
            raise RefusedRequestError(400, "Bad Request: object expected")
        return found
    texts: dict[str, Any] = dict(parse_qsl(urlsplit(request.target).query))
    if kind.startswith("application/x-www-form-urlencoded"):
        texts |= parse_qsl(request.body.decode())
    elif kind.startswith("multipart/form-data"):
        parts = dict(_multipart(kind, request.body))
        attached = {f"attach://{name}": name for name in parts if name not in known}
        texts |= {
            name: parts[attached[it]] if it in attached else it
            for name, it in parts.items()
            if f"attach://{name}" not in attached
        }
    return {name: _value(text, known.get(name, "")) for name, text in texts.items()}


def _multipart(kind: str, body: bytes) -> Iterator[tuple[str, Any]]:
    parser = email.parser.BytesParser(policy=email.policy.HTTP)
    message = parser.parsebytes(b"content-type: %s\r\n\r\n%s" % (kind.encode(), body))
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        file = part.get_filename()
        yield (str(name), content.decode() if file is None else UploadedFile(file, content))


def _value(text: Any, types: str) -> Any:
    """Return the value of a field of a form, where all are texts."""
    if not isinstance(text, str) or "String" in types.rstrip("!").split("|"):
        is_number = "Integer" in types and str(text).lstrip("-").isdigit()
        return int(text) if is_number else text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _check_entities(text: str, entities: list[dict[str, Any]]) -> None:
    units = text.encode("utf-16-le")
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        inside = units[2 * start : 2 * end]
        try:
            inside.decode("utf-16-le")
        except UnicodeDecodeError:
            inside = b""
        if start < 0 or not inside or len(inside) != 2 * (end - start):
            raise RefusedRequestError(
                400, "Bad Request: can't parse entities: entity is out of the text"
            )


def _user(id_: int) -> dict[str, Any]:
    return {"id": id_, "is_bot": False, "first_name": f"Person {id_}"}


def _entities(text: str) -> dict[str, Any]:
    """Return the entities that Telegram finds in what a person writes."""
    found = []
    for word in text.split():
        if word.startswith("@") and len(word) > 1:
            offset = _units(text[: text.index(word)])
            found.append({"type": "mention", "offset": offset, "length": _units(word)})
    return {"entities": found} if found else {}


@contextmanager
def revoked(fake: FakeTelegram) -> Iterator[None]:
    """Refuse the token of the bot for the length of the block."""
    fake.is_revoked = True
    try:
        yield
    finally:
        fake.is_revoked = False


async def _main() -> None:
    async with FakeTelegram().open() as fake:
        print(fake.address, flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(_main)
