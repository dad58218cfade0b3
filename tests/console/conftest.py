"""One browser and one server for all tests of the console."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.kit import ConsoleServer
from tests.report.browser import Browser, chromium, open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.fail("the console's tests need Chromium: apt-get install chromium")
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    folder: Path = tmp_path_factory.mktemp("console")
    folder.chmod(0o700)
    served = ConsoleServer(folder)
    served.start()
    yield served
    served.end()
