"""Task-local session variables, and whether the session of this turn can be told more later."""

import os
from collections.abc import Iterator

import pytest
import trio

from orchestrator.delegation.session_context import (
    SessionVars,
    async_delivery_supported,
    bind_session,
    clear_session_vars,
    get_session_env,
    reset_session_vars,
    session_strings,
    set_current_session_id,
    set_session_vars,
)

PLATFORM = "ORCHESTRATOR_SESSION_PLATFORM"
CHAT_ID = "ORCHESTRATOR_SESSION_CHAT_ID"
SESSION_ID = "ORCHESTRATOR_SESSION_ID"
CRON_CHAT_ID = "ORCHESTRATOR_CRON_AUTO_DELIVER_CHAT_ID"
ASYNC_DELIVERY = "ORCHESTRATOR_SESSION_ASYNC_DELIVERY"

OF_A_SESSION = {
    PLATFORM: "platform",
    "ORCHESTRATOR_SESSION_SOURCE": "source",
    CHAT_ID: "chat_id",
    "ORCHESTRATOR_SESSION_CHAT_NAME": "chat_name",
    "ORCHESTRATOR_SESSION_THREAD_ID": "thread_id",
    "ORCHESTRATOR_SESSION_USER_ID": "user_id",
    "ORCHESTRATOR_SESSION_USER_NAME": "user_name",
    "ORCHESTRATOR_SESSION_KEY": "session_key",
    SESSION_ID: "session_id",
    "ORCHESTRATOR_SESSION_MESSAGE_ID": "message_id",
    "ORCHESTRATOR_SESSION_CWD": "cwd",
}
OF_CRON = {
    "ORCHESTRATOR_CRON_AUTO_DELIVER_PLATFORM": "cron_auto_deliver_platform",
    CRON_CHAT_ID: "cron_auto_deliver_chat_id",
    "ORCHESTRATOR_CRON_AUTO_DELIVER_THREAD_ID": "cron_auto_deliver_thread_id",
}
ALL = OF_A_SESSION | OF_CRON

each_of_a_session = pytest.mark.parametrize(
    ("name", "short"), OF_A_SESSION.items(), ids=OF_A_SESSION.values()
)
each = pytest.mark.parametrize(("name", "short"), ALL.items(), ids=ALL.values())


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests that are not async share one context, and all share the environment."""
    for name in (*ALL, ASYNC_DELIVERY):
        monkeypatch.setenv(name, "")  # so that what a test leaves there is undone, too
        monkeypatch.delenv(name)
    reset_session_vars()
    yield
    reset_session_vars()


@each
def test_an_unset_variable_falls_back_to_the_environment_then_the_default(
    monkeypatch: pytest.MonkeyPatch, name: str, short: str
) -> None:
    """A command line, cron and tests have one session a process, and keep it there."""
    assert get_session_env(name) == ""
    assert get_session_env(name, "nobody") == "nobody"

    monkeypatch.setenv(name, "of the process")

    assert get_session_env(name, "nobody") == "of the process"
    assert short not in session_strings()


@each
def test_a_bound_variable_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, short: str
) -> None:
    monkeypatch.setenv(name, "of the process")

    with bind_session(**{short: "mine"}, async_delivery=None):
        assert get_session_env(name, "nobody") == "mine"
        assert session_strings() == {short: "mine"}

    assert get_session_env(name, "nobody") == "of the process"


@each
def test_a_variable_bound_to_an_empty_text_hides_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, short: str
) -> None:
    """The environment may describe another session."""
    monkeypatch.setenv(name, "of the process")

    with bind_session(**{short: ""}, async_delivery=None):
        assert get_session_env(name, "nobody") == ""
        assert session_strings() == {}


@each_of_a_session
def test_a_set_variable_wins_until_it_is_cleared_and_reset(
    monkeypatch: pytest.MonkeyPatch, name: str, short: str
) -> None:
    monkeypatch.setenv(name, "of the process")

    tokens = set_session_vars(**{short: "mine"}, async_delivery=True)
    assert get_session_env(name, "nobody") == "mine"

    clear_session_vars(tokens)
    assert get_session_env(name, "nobody") == ""

    reset_session_vars()
    assert get_session_env(name, "nobody") == "of the process"


def test_setting_a_session_clears_the_omitted_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_A_SESSION:
        monkeypatch.setenv(name, "of the process")
    everything = {short: f"my {short}" for short in OF_A_SESSION.values()}
    set_session_vars(**everything, async_delivery=True)
    assert session_strings() == everything

    set_session_vars(platform="telegram")

    assert session_strings() == {"platform": "telegram"}
    assert [get_session_env(name) for name in OF_A_SESSION] == ["telegram", *[""] * 10]


def test_a_session_may_be_set_in_the_order_of_its_variables() -> None:
    set_session_vars("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", False)

    assert "".join(get_session_env(name) for name in OF_A_SESSION) == "abcdefghijk"
    assert not async_delivery_supported()


def test_clearing_ignores_its_tokens_and_restores_no_value() -> None:
    """They are only taken because callers have them."""
    outer = set_session_vars(platform="telegram")
    set_session_vars(platform="slack")

    clear_session_vars(outer)
    assert get_session_env(PLATFORM, "nobody") == ""

    set_session_vars(platform="slack")
    clear_session_vars([])
    assert get_session_env(PLATFORM, "nobody") == ""


def test_cron_keeps_its_target_when_a_session_is_set_and_cleared() -> None:
    """A job names its target once, and may take several turns. Only a reset ends it."""
    with bind_session(cron_auto_deliver_chat_id="42"):
        clear_session_vars(set_session_vars(platform="cron"))
        assert get_session_env(CRON_CHAT_ID) == "42"

        reset_session_vars()
        assert get_session_env(CRON_CHAT_ID, "nobody") == "nobody"


def test_a_name_that_is_not_ours_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOMEBODY_ELSES", "theirs")

    with bind_session(platform="telegram"):
        assert get_session_env("SOMEBODY_ELSES") == "theirs"
        assert get_session_env("NOBODYS") == ""
        assert get_session_env("NOBODYS", "nobody") == "nobody"
        assert get_session_env("platform", "nobody") == "nobody"


def test_a_turn_has_delivery_unless_its_door_denies_it() -> None:
    assert async_delivery_supported()

    tokens = set_session_vars(async_delivery=False)
    assert not async_delivery_supported()

    clear_session_vars(tokens)
    assert async_delivery_supported()


def test_a_denial_ends_with_a_reset() -> None:
    set_session_vars(async_delivery=False)

    reset_session_vars()

    assert async_delivery_supported()


def test_a_session_delivers_asynchronously_by_default() -> None:
    set_session_vars(platform="telegram")

    assert async_delivery_supported()


def test_a_delivering_turn_after_a_stateless_one_can_be_told_later() -> None:
    """It is the door of this very turn that counts, in the same context and session."""
    with bind_session(session_id="s", platform="api", async_delivery=False):
        assert not async_delivery_supported()
    with bind_session(session_id="s", platform="telegram", async_delivery=True):
        assert async_delivery_supported()

    set_session_vars(session_id="s", platform="api", async_delivery=False)
    assert not async_delivery_supported()
    set_session_vars(session_id="s", platform="telegram")
    assert async_delivery_supported()


def test_async_delivery_is_neither_a_string_nor_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable that a process inherits must not make a promise, or break one."""
    monkeypatch.setenv(ASYNC_DELIVERY, "of the process")

    assert async_delivery_supported()
    with bind_session(async_delivery=False):
        assert get_session_env(ASYNC_DELIVERY) == "of the process"
        assert session_strings() == {}


def test_bindings_nest_and_restore() -> None:
    with bind_session(platform="telegram", chat_id="42", async_delivery=False):
        with bind_session(chat_id="43", user_id="7", platform=None):
            assert session_strings() == {"platform": "telegram", "chat_id": "43", "user_id": "7"}
            assert not async_delivery_supported()
            with bind_session(async_delivery=True, chat_id=""):
                assert session_strings() == {"platform": "telegram", "user_id": "7"}
                assert async_delivery_supported()
            assert not async_delivery_supported()
        assert session_strings() == {"platform": "telegram", "chat_id": "42"}

    assert session_strings() == {}
    assert async_delivery_supported()


def test_a_binding_without_values_has_no_effect() -> None:
    nothing: SessionVars = {"platform": None, "async_delivery": None}

    with bind_session(platform="telegram", async_delivery=False):
        with bind_session(), bind_session(**nothing):
            assert session_strings() == {"platform": "telegram"}
            assert not async_delivery_supported()


def test_a_binding_restores_the_unset_and_the_cleared_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PLATFORM, "of the process")

    with bind_session(platform="telegram"):
        pass
    assert get_session_env(PLATFORM) == "of the process"

    clear_session_vars(set_session_vars())
    with bind_session(platform="telegram"):
        pass
    assert get_session_env(PLATFORM) == ""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_restores_and_goes_on(error: type[BaseException]) -> None:
    def fail() -> None:
        with bind_session(platform="slack", async_delivery=False):
            raise error

    with bind_session(platform="telegram"):
        with pytest.raises(error):
            fail()

        assert session_strings() == {"platform": "telegram"}
        assert async_delivery_supported()


def test_a_binding_undoes_every_change_inside() -> None:
    """A tool that sets, clears or resets does so for its own call."""
    with bind_session(platform="telegram", async_delivery=False):
        with bind_session(chat_id="42"):
            set_session_vars(platform="slack")
        with bind_session(chat_id="42"):
            clear_session_vars(None)
        with bind_session(chat_id="42"):
            reset_session_vars()

        assert session_strings() == {"platform": "telegram"}
        assert not async_delivery_supported()


def test_a_binding_extends_the_values_at_its_entry() -> None:
    """It does not matter where it was made."""
    binding = bind_session(chat_id="42")

    with bind_session(platform="telegram"), binding:
        assert session_strings() == {"platform": "telegram", "chat_id": "42"}


def test_a_variable_that_does_not_exist_cannot_be_bound() -> None:
    """The names may come from a journal that a later version has written."""
    strings = {"tribe": "x", "chat_id": "42", "planet": "y"}

    with pytest.raises(TypeError, match="no such session variable: planet, tribe;"):
        bind_session(**strings, async_delivery=None)


def test_strings_are_taken_along_by_value_and_bound_again() -> None:
    with bind_session(platform="telegram", chat_id="42", user_id="", async_delivery=False):
        strings = session_strings()
        with bind_session(chat_id="43"):
            pass

    assert strings == {"platform": "telegram", "chat_id": "42"}
    with bind_session(**strings, async_delivery=None):
        assert session_strings() == strings
        assert async_delivery_supported()  # that is for the next turn's door to say


def test_the_current_session_is_named_in_the_task_and_in_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SESSION_ID, "of the process")
    set_session_vars(platform="cli", session_id="first", async_delivery=False)

    set_current_session_id("second")

    assert get_session_env(SESSION_ID) == os.environ[SESSION_ID] == "second"
    assert session_strings() == {"platform": "cli", "session_id": "second"}
    assert not async_delivery_supported()

    reset_session_vars()
    assert get_session_env(SESSION_ID) == "second"


def test_a_binding_keeps_its_session_when_the_process_goes_on_to_another() -> None:
    with bind_session(session_id="first"):
        with bind_session():
            set_current_session_id("second")

        assert get_session_env(SESSION_ID) == "first"
        assert os.environ[SESSION_ID] == "second"


async def test_tasks_that_run_at_the_same_time_never_see_each_other() -> None:
    """With one place for all, the second message moved the first one's answer to its chat."""
    seen: dict[str, list[tuple[object, bool]]] = {}

    async def turn(chat: str, delivers: bool) -> None:
        with bind_session(chat_id=chat, async_delivery=delivers):
            seen[chat] = []
            for _ in range(5):
                await trio.sleep(1)
                seen[chat].append((session_strings(), async_delivery_supported()))
        assert session_strings() == {}

    async with trio.open_nursery() as turns:
        for number in range(20):
            turns.start_soon(turn, str(number), number % 2 == 0)

    assert seen == {str(n): [({"chat_id": str(n)}, n % 2 == 0)] * 5 for n in range(20)}


async def test_tasks_that_set_and_clear_never_see_each_other() -> None:
    async def turn(chat: str) -> None:
        tokens = set_session_vars(chat_id=chat, async_delivery=False)
        await trio.sleep(1)
        assert get_session_env(CHAT_ID) == chat
        assert not async_delivery_supported()
        await trio.sleep(int(chat))
        clear_session_vars(tokens)

    async with trio.open_nursery() as turns:
        for number in range(20):
            turns.start_soon(turn, str(number))

    assert get_session_env(CHAT_ID, "nobody") == "nobody"
    assert async_delivery_supported()


async def test_a_task_keeps_the_values_of_its_start() -> None:
    left = trio.Event()
    seen: list[object] = []

    async def child() -> None:
        await left.wait()
        seen.extend((session_strings(), async_delivery_supported()))

    async with trio.open_nursery() as children:
        with bind_session(chat_id="42", async_delivery=False):
            children.start_soon(child)
        left.set()

    assert seen == [{"chat_id": "42"}, False]


async def test_a_task_started_unbound_inherits_no_values() -> None:
    """It does not matter who is bound at that time, not even in the same nursery."""
    bound, seen = trio.Event(), trio.Event()

    async def stateless() -> None:
        with bind_session(chat_id="42", async_delivery=False):
            bound.set()
            await seen.wait()

    async def other() -> None:
        await trio.lowlevel.checkpoint()
        assert session_strings() == {}
        assert get_session_env(CHAT_ID, "nobody") == "nobody"
        assert async_delivery_supported()
        seen.set()

    async with trio.open_nursery() as tasks:
        tasks.start_soon(stateless)
        await bound.wait()
        tasks.start_soon(other)


async def test_a_task_may_reset_its_inherited_values() -> None:
    seen: list[object] = []

    async def child() -> None:
        reset_session_vars()
        await trio.lowlevel.checkpoint()
        seen.extend((session_strings(), async_delivery_supported()))

    with bind_session(chat_id="42", async_delivery=False):
        async with trio.open_nursery() as children:
            children.start_soon(child)

        assert seen == [{}, True]
        assert session_strings() == {"chat_id": "42"}
        assert not async_delivery_supported()


async def test_a_cancelled_binding_restores() -> None:
    with bind_session(chat_id="42"):
        with trio.move_on_after(1) as scope, bind_session(chat_id="43"):
            await trio.sleep_forever()

        assert scope.cancelled_caught
        assert session_strings() == {"chat_id": "42"}


@pytest.mark.realtime
async def test_a_thread_sees_the_values_of_the_task_that_started_it() -> None:
    """A tool that blocks is still a tool of its turn."""

    def look() -> tuple[object, bool]:
        return session_strings(), async_delivery_supported()

    async def turn(chat: str, delivers: bool) -> None:
        with bind_session(chat_id=chat, async_delivery=delivers):
            seen = await trio.to_thread.run_sync(look)
        assert seen == ({"chat_id": chat}, delivers)

    async with trio.open_nursery() as turns:
        for number in range(10):
            turns.start_soon(turn, str(number), number % 2 == 0)

    # These threads are the same ones again, and have kept nothing.
    assert await trio.to_thread.run_sync(look) == ({}, True)


@pytest.mark.realtime
async def test_a_value_set_in_a_thread_stays_in_it() -> None:
    with bind_session(chat_id="42"):
        await trio.to_thread.run_sync(set_session_vars, "telegram")

        assert session_strings() == {"chat_id": "42"}
