"""The cost of a model call at 1, 50 and 500 calls in flight: `python -m benchmarks.http_client`.

The server is a process of its own, on loopback, and streams a few words; only our own processor
time counts. Beside our client stands the same client with one shared pool.
"""

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import httpx2
import trio

from orchestrator.agents import ModelRequest, UserMessage
from orchestrator.agents.models.providers.openai_chat import OpenAIModel, completion_request

IN_FLIGHT = (1, 50, 500)
CALLS = 300
ROUNDS = 2
AT_MOST = 2.0
SECONDS = 300

REQUEST = ModelRequest(instructions="Be brief.", transcript=[UserMessage("hello")], tools=())


async def milliseconds_a_call(ask: Callable[[], Awaitable[object]], many: int) -> float:
    """Return the CPU time of a call when this many are always in flight, best of several."""

    async def ask_again_and_again(times: int) -> None:
        for _ in range(times):
            await ask()

    async def ask_all(times: int) -> None:
        async with trio.open_nursery() as callers:
            for _ in range(many):
                callers.start_soon(ask_again_and_again, times)

    # The first call of each caller opens its connection.
    await ask_all(1)
    each = max(2, CALLS // many)
    took: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        await ask_all(each)
        took.append(time.process_time() - began)
    return min(took) * 1000 / (each * many)


async def measure(url: str) -> None:
    with trio.fail_after(SECONDS):
        best = await costs(url)
    print(f"{'calls in flight':<28}{''.join(f'{many:>10}' for many in IN_FLIGHT)}")
    for name, each in best.items():
        print(f"{name + ', ms':<28}{''.join(f'{cost:>10.2f}' for cost in each)}")
        ratios = "".join(f"{cost / each[0]:>10.2f}" for cost in each)
        print(f"{'  times one call':<28}{ratios}")
    ratio = best["ours"][-1] / best["ours"][0]
    print(f"{IN_FLIGHT[-1]} in flight cost {ratio:.2f} times one; the bar is {AT_MOST}")


async def costs(url: str) -> dict[str, list[float]]:
    """Return the cost of a call with each client, for each number in flight."""
    model = OpenAIModel("fake", key="", base_url=f"{url}/v1")
    body = completion_request("fake", REQUEST, None)

    async def ask_through_one_pool() -> None:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            async for _ in response.aiter_raw():
                pass

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(limits=limits, trust_env=False, timeout=60) as client:
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "ours": lambda: model.answer(REQUEST),
            "one pool, answer not read": ask_through_one_pool,
        }
        best = {
            name: [await milliseconds_a_call(ask, many) for many in IN_FLIGHT]
            for name, ask in ways.items()
        }
    await model.aclose()
    return best


def main() -> None:
    command = [sys.executable, "-m", "tests.fake_provider"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            trio.run(measure, server.stdout.readline().strip())
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
