"""Chats with `store: true`, as the official client retrieves, lists, changes and deletes them."""

from pathlib import Path

import openai
import pytest

from tests.kit import worker
from tests.server.chat_kit import HELLO
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import serving

pytestmark = pytest.mark.realtime


async def test_a_stored_chat_is_retrieved_changed_and_deleted(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(worker(says="42"), journal=journal) as served:
        made = await served.openai.chat.completions.create(
            model="worker",
            messages=[{"role": "system", "content": "Be brief."}, *HELLO],
            store=True,
            n=2,
            metadata={"for": "tea"},
        )
    async with serving(worker(), journal=journal) as served:
        chats = served.openai.chat.completions
        shown = await chats.retrieve(made.id)
        messages = await chats.messages.list(made.id)
        changed = await chats.update(made.id, metadata={"for": "milk"})
        again = await chats.retrieve(made.id)
        await chats.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await chats.retrieve(made.id)
        assert [it async for it in await chats.list()] == []

    assert shown.choices == made.choices
    assert shown.usage == made.usage
    assert [(it.role, it.content) for it in messages.data] == [
        ("system", "Be brief."),
        ("user", "hello"),
    ]
    assert changed == again
    assert again.metadata == {"for": "milk"}


async def test_stored_chats_are_listed_in_pages_by_model_and_metadata() -> None:
    async with serving(worker(), worker("other")) as served:
        chats = served.openai.chat.completions
        made = [
            await chats.create(model=model, messages=HELLO, store=store, metadata={"for": drink})
            for model, drink, store in (
                ("worker", "tea", True),
                ("worker", "tea", False),
                ("worker", "milk", True),
                ("other", "tea", True),
            )
        ]
        ids = [it.id for it in made]
        kept = [ids[0], ids[2], ids[3]]
        assert [it.id async for it in await chats.list(limit=1)] == kept
        newest = await chats.list(order="desc")
        assert [it.id for it in newest.data] == kept[::-1]
        of_model = await chats.list(model="worker")
        assert [it.id for it in of_model.data] == [ids[0], ids[2]]
        with_tea = await chats.list(metadata={"for": "tea"})
        assert [it.id for it in with_tea.data] == [ids[0], ids[3]]
        with pytest.raises(openai.NotFoundError):
            await chats.retrieve(ids[1])


async def test_only_its_owner_sees_a_stored_chat(tmp_path: Path) -> None:
    async with serving_with_keys(worker(), folder=tmp_path) as server:
        ann, bob = server.new_token("ann"), server.new_token("bob")
        path = "/v1/chat/completions"
        body = {"model": "worker", "messages": HELLO, "store": True}
        made = (await server.ask(ann, "POST", path, body)).json()["id"]
        assert (await server.ask(ann, "GET", f"{path}/{made}")).status_code == 200
        for method, where in (("GET", ""), ("DELETE", ""), ("GET", "/messages")):
            answer = await server.ask(bob, method, f"{path}/{made}{where}")
            assert answer.status_code == 404
        assert len((await server.ask(ann, "GET", path)).json()["data"]) == 1
        assert (await server.ask(bob, "GET", path)).json()["data"] == []
