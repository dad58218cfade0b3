"""The console against pages on other ports of its host: browsers send them its cookie."""

import socket

import httpx2
import pytest

from tests.console.kit import ConsoleServer, enter_code, look, sign_in, wait
from tests.report.browser import Browser, Page

pytestmark = pytest.mark.realtime


def cookies_at_another_port(page: Page) -> str:
    """Open a page on another port, and return the cookies that its server receives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        page.run(f"void (location.href = 'http://127.0.0.1:{listener.getsockname()[1]}/')")
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as request:
            headers = [line.decode() for line in iter(request.readline, b"\r\n")]
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    return next(it.partition(": ")[2].strip() for it in headers if it.startswith("Cookie:"))


def test_the_cookie_that_another_port_receives_opens_nothing(
    browser: Browser, server: ConsoleServer
) -> None:
    page = sign_in(browser, server)
    run = server.begin("operator")
    wait(page, "orchestrator.inbox.approvals.length === 1")
    [approval] = server.approvals(run)

    cookies = cookies_at_another_port(page)

    assert "orchestrator_" in cookies
    forged = {"cookie": cookies, "origin": server.url, "sec-fetch-site": "same-origin"}
    with httpx2.Client(base_url=server.url, headers=forged, timeout=30) as thief:
        assert thief.get("/console/me").status_code == 401
        assert thief.get("/console/events?watch=1:runs").status_code == 401
        begun = thief.post("/v1/runs", json={"agent": "operator", "input": "go"})
        assert begun.status_code == 401
        verdict = thief.post(f"/v1/approvals/{approval}", json={"answer": "once"})
        assert verdict.status_code == 401
    assert server.approvals(run) == [approval]
    server.cancel(run)
    page.close()


def test_the_first_approval_of_a_link_asks_for_the_approval_code(
    browser: Browser, server: ConsoleServer
) -> None:
    server.end()
    server.start()
    page = look(browser, server)
    run = server.begin("operator")
    page.run("location.hash = '#/inbox'")
    wait(page, "document.querySelector('.inbox .ask .approve')")

    page.click(".inbox .ask .approve")
    enter_code(page, "AAAAA-AAAAA")
    wait(page, "document.querySelector('dialog .problem').innerText.includes('not the approval')")
    assert len(server.approvals(run)) == 1
    enter_code(page, server.approval_code)

    # The verdict is sent at once, and the next one needs no code.
    wait(page, "!orchestrator.inbox.approvals.length")
    assert server.approvals(run) == []
    other = server.begin("operator")
    wait(page, "document.querySelector('.inbox .ask .approve')")
    page.click(".inbox .ask .approve")
    wait(page, "!orchestrator.inbox.approvals.length")
    assert server.approvals(other) == []
    page.close()


LOOPBACK = (
    *("http://127.0.0.1:8/", "http://127.9.8.7/", "http://2130706433/", "http://0x7f.1/"),
    *("http://[::1]:3/", "http://[::ffff:127.0.0.1]/", "http://[::]/", "http://0.0.0.0:1/"),
    *("http://localhost/", "http://LOCALHOST.:3/", "https://a.localhost/x", "http://x@127.1/"),
)


def test_addresses_of_this_machine_are_no_links(browser: Browser, server: ConsoleServer) -> None:
    server.end()
    server.start()
    page = look(browser, server)
    written = [f"<{it}> and [words]({it})" for it in (*LOOPBACK, "https://example.org/")]
    run = server.begin("hostile", "\n\n".join(written))
    links = "[...document.querySelectorAll('.message a')].map(it => it.href)"

    page.run(f"location.hash = '#/runs/{run}'")
    page.press("ArrowDown")
    wait(page, f"{links}.length")
    assert page.run(links) == ["https://example.org/"] * 2
    assert page.run("document.querySelector('.message').innerText.includes('http://127.9.8.7/')")
    page.close()
