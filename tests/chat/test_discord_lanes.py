"""Events side by side, and those of one channel in their order."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

from orchestrator.products.chat.discord.lanes import MOST, Lanes, Order


class Handled:
    """The handled events, and the notes of them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.noted: list[int] = []

    async def handle(self, number: int, gate: trio.Event | None = None) -> None:
        await trio.lowlevel.checkpoint()
        if gate is not None:
            await gate.wait()
        self.numbers.append(number)


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Lanes, Handled]]:
    handled = Handled()
    async with trio.open_nursery() as nursery:
        yield Lanes(nursery, handled.noted.append), handled
        nursery.cancel_scope.cancel()


async def test_a_position_is_noted_after_all_earlier_events_are_handled() -> None:
    async with opened() as (lanes, handled):
        gates = {number: trio.Event() for number in (1, 2, 3)}
        for number, gate in gates.items():
            await lanes.put(number, str(number), partial(handled.handle, number, gate))
        for number in (3, 2):
            gates[number].set()
            await trio.testing.wait_all_tasks_blocked()
            assert handled.noted[-1] == 0
        gates[1].set()
        await trio.testing.wait_all_tasks_blocked()
        assert handled.noted[-1] == 3


async def test_an_exclusive_event_waits_for_all_others() -> None:
    async with opened() as (lanes, handled):
        first, alone = trio.Event(), trio.Event()
        await lanes.put(1, "a", partial(handled.handle, 1, first))
        await lanes.put(2, Order.ALONE, partial(handled.handle, 2, alone))
        await lanes.put(3, "b", partial(handled.handle, 3))
        await lanes.put(4, Order.AT_ONCE, partial(handled.handle, 4))
        await trio.testing.wait_all_tasks_blocked()
        assert handled.numbers == [4]
        first.set()
        await trio.testing.wait_all_tasks_blocked()
        assert handled.numbers == [4, 1]
        alone.set()
        await trio.testing.wait_all_tasks_blocked()
        assert handled.numbers == [4, 1, 2, 3]
        assert handled.noted[-1] == 4


async def test_channels_keep_their_order_however_long_each_takes() -> None:
    rolled = random.Random(7)
    async with opened() as (lanes, handled):

        async def handle(number: int) -> None:
            await trio.sleep(rolled.random())
            await handled.handle(number)

        for number in range(1, 301):
            await lanes.put(number, str(number % 7), partial(handle, number))
        await trio.sleep(1000)
        for channel in range(7):
            of_channel = [it for it in handled.numbers if it % 7 == channel]
            assert of_channel == sorted(of_channel)
        assert handled.noted == sorted(handled.noted)
        assert handled.noted[-1] == 300
        assert not lanes._last_of


async def test_the_lanes_limit_the_events_they_hold() -> None:
    async with opened() as (lanes, handled):
        gate = trio.Event()
        for number in range(1, MOST + 1):
            await lanes.put(number, "a", partial(handled.handle, number, gate))
        with trio.move_on_after(60) as scope:
            await lanes.put(MOST + 1, "a", partial(handled.handle, MOST + 1))
        assert scope.cancelled_caught
