"""The client of `http_server.py`: asks servers in turn, and prints what each request cost them.

It imports nothing but the standard library, and reads the processor time of its parent, which
serves them all.
"""

import http.client
import json
import os
import sys
import time

path, token, kind, rounds, clients, *hosts = sys.argv[1:]
CLOCK = (~os.getppid() << 3) | 2
"""The clock of the parent's processor time, over all its threads (clock_getcpuclockid)."""
HEADERS = {"authorization": f"Bearer {token}", "content-type": "application/json"}
BODY = json.dumps(
    {"model": "talker", "messages": [{"role": "user", "content": "go"}], "stream": kind != "plain"}
)
EACH = 4
"""How many requests there are on each connection in a round."""
TRIES = 5
"""How often a round is measured whose connections break: a busy server closes idle ones."""
PAUSE = 0.003
"""How long the server may go on after its first word before it rests."""


def ask(connection: http.client.HTTPConnection) -> None:
    connection.request("POST", path, BODY, HEADERS)


def answer_of(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    return answer


def ask_at_once(connections: list[http.client.HTTPConnection]) -> tuple[float, int]:
    """Ask on all connections at once, and return the processor time of the server."""
    begun = time.clock_gettime(CLOCK)
    for _ in range(EACH):
        for connection in connections:
            ask(connection)
        for connection in connections:
            answer_of(connection).read()
    return time.clock_gettime(CLOCK) - begun, EACH * len(connections)


def ask_for_first_word(connection: http.client.HTTPConnection) -> tuple[float, int]:
    """Return the processor time of the server until the first word is sent, and it rests."""
    begun = time.clock_gettime(CLOCK)
    ask(connection)
    answer = answer_of(connection)
    events = 0
    while events < 2:
        events += answer.readline().startswith(b"data: ")
    time.sleep(PAUSE)  # noqa: TID251 (the server is to rest)
    used = time.clock_gettime(CLOCK) - begun
    answer.read()
    time.sleep(PAUSE)  # noqa: TID251 (the server is to rest)
    return used, 1


def ask_for_stream(connection: http.client.HTTPConnection) -> tuple[float, int]:
    begun = time.clock_gettime(CLOCK)
    ask(connection)
    events = answer_of(connection).read().count(b"data: ")
    return time.clock_gettime(CLOCK) - begun, events


def measure(connections: list[http.client.HTTPConnection]) -> tuple[float, int]:
    """Measure a round, and once more on new connections if one was broken meanwhile."""
    for left in reversed(range(TRIES)):
        try:
            if kind == "plain":
                return ask_at_once(connections)
            if kind == "first":
                return ask_for_first_word(connections[0])
            return ask_for_stream(connections[0])
        except (OSError, http.client.HTTPException):
            if not left:
                raise
            for connection in connections:
                connection.close()  # the next request opens it again
    raise AssertionError


def main() -> None:
    many = int(clients) if kind == "plain" else 1
    servers = [[http.client.HTTPConnection(it) for _ in range(many)] for it in hosts]
    costs: list[dict[str, list[float]]] = [{"cpu": [], "wall": []} for _ in hosts]
    for number in range(int(rounds) + 1):
        for connections, cost in zip(servers, costs, strict=True):
            begun = time.perf_counter()
            used, count = measure(connections)
            if number:  # the first one connects, and imports what is imported late
                cost["cpu"].append(used / count)
                cost["wall"].append((time.perf_counter() - begun) / count)
    print(json.dumps(costs))


main()
