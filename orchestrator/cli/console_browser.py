"""Opens the console in a browser of this machine.

The link signs in anyone who opens it, and every user of the machine sees the arguments of a
process. So the browser gets a file that only this user can read, which leads to the link.
"""

import os
import platform
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import mkstemp
from typing import Final

import trio

FOLDER: Final = "keys"
"""The folder of the file; a sandboxed command of an agent cannot read it."""
PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>Console</title>
<p><a href="{link}">Open the console</a></p>
"""


@contextmanager
def console_file(folder: Path, link: str) -> Generator[Path]:
    """Keep a file that leads to the one-time link, as long as the block lasts."""
    # Made for this user alone, and under a name of its own: a folder may have several servers.
    descriptor, name = mkstemp(".html", "open-console-", folder / FOLDER)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(PAGE.format(link=escape(link)))
        yield Path(name).absolute()
    finally:
        Path(name).unlink(missing_ok=True)


async def open_browser(file: Path, link: str) -> None:
    """Open a browser, if there is one; the link was printed, too."""
    # A browser of Windows cannot read the files of the Linux beside it.
    is_beside_windows = "microsoft" in platform.release().lower()
    address = link if is_beside_windows else file.as_uri()
    await trio.to_thread.run_sync(webbrowser.open, address, abandon_on_cancel=True)
