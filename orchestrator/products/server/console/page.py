"""The console's page and its files: the same for everyone, without any data of a run.

No text can become code in it: the policy allows only our own files, and no script can be made from
text (trusted types).
"""

from html import escape
from typing import Final

import trio
from starlette.responses import Response

from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.viewer import built

PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Orchestrator</title>
<link rel="icon" href="console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="console/console.css">
<script src="console/console.js" defer></script>
</head>
<body>
<noscript><p>The console needs JavaScript. Without it, <code>orchestrator watch</code> shows the\
 same in a terminal.</p></noscript>
</body>
</html>
"""
ICON: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7"\
 fill="#0a5fd1"/><g stroke="#fff" stroke-width="2.4" fill="none"><path d="M16 11v5M16 16H9v4M16\
 16h7v4"/></g><g fill="#fff"><circle cx="16" cy="9" r="3.6"/><circle cx="9" cy="23"\
 r="3.6"/><circle cx="23" cy="23" r="3.6"/></g></svg>
"""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types worker"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
MEDIA_TYPES: Final = {
    "console.js": "text/javascript",
    "worker.js": "text/javascript",
    "console.css": "text/css",
}


@Operation("GET", "/", None, Answer("HTML", media_types=("text/html",)), is_public=True)
async def get_page(call: ApiCall) -> Response:
    """Return the page of the console."""
    await trio.lowlevel.checkpoint()
    oidc = call.server.settings.oidc
    page = PAGE
    if oidc is not None:
        named = f'<meta name="oidc" content="{escape(oidc.host)}">'
        page = page.replace("<title>", f"{named}\n<title>")
    return Response(page, headers=HEADERS, media_type="text/html")


@Operation(
    "GET", "/console/icon.svg", None, Answer("SVG", media_types=("image/svg+xml",)), is_public=True
)
async def get_icon(call: ApiCall) -> Response:
    """Return the icon of the console."""
    await trio.lowlevel.checkpoint()
    del call
    return Response(ICON, headers=HEADERS, media_type="image/svg+xml")


async def get_file(call: ApiCall) -> Response:
    """Return a file of the console."""
    await trio.lowlevel.checkpoint()
    name = call.operation.path.removeprefix("/console/")
    return Response(built(name), headers=HEADERS, media_type=MEDIA_TYPES[name])


FILES: Final = tuple(
    Operation(
        "GET", f"/console/{name}", None, Answer("A file", media_types=(kind,)), is_public=True
    )(get_file)
    for name, kind in MEDIA_TYPES.items()
)
