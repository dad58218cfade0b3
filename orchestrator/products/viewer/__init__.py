"""The built scripts and styles of the report and the console, and pages that fetch nothing.

Report and console share `sources/run`, which shows a run. `make viewer` builds them.
"""

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def html_page(title: str, body: str, *, style: str, script: str = "") -> str:
    """Return a page in one file. Its policy allows only its style and its script, by their hashes.

    The title is a text, the body is HTML.
    """
    policy = f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    if script:
        policy = f"script-src {_hash(script)}; {policy}"
        body = f"{body}\n<script>{script}</script>"
    policy = f"default-src 'none'; {policy}"
    return _PAGE.format(policy=policy, title=escape(title), style=style, body=body)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def built(name: str) -> str:
    """Return a built script or style sheet, such as `report.js`."""
    return (files("orchestrator.products.viewer") / "built" / name).read_text(encoding="utf-8")
