"""The page of the MCP App: it draws the rows of a tree, which its host sends with a tool's result.

The page speaks revision 2026-01-26 of MCP Apps with the window around it, and fetches nothing. All
texts of a run are set as text, never as markup.
"""

from typing import Final

from orchestrator.products.viewer import html_page
from orchestrator.version import VERSION

_STYLE: Final = """
:root{color-scheme:light dark;--ink:light-dark(#1f2328,#e6edf3);--dim:light-dark(#59636e,#9198a1);
--ok:light-dark(#1a7f37,#3fb950);--bad:light-dark(#cf222e,#f85149);
--busy:light-dark(#0969da,#58a6ff);--wait:light-dark(#9a6700,#d29922)}
body{margin:0;padding:10px 12px;color:var(--color-text-primary,var(--ink));
font:13px/1.5 var(--font-mono,ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace)}
#scroll{overflow-x:auto}table{border-collapse:collapse}
th{text-align:left;font-weight:400}th,td{padding:0 14px 0 0;white-space:pre}
p{margin:0}.mode,.about,p{color:var(--color-text-secondary,var(--dim))}
.time,.tokens,.cost{text-align:right}
.ok .status{color:var(--ok)}.bad .status{color:var(--bad)}
.busy .status{color:var(--busy)}.wait .status{color:var(--wait)}
"""
_BODY: Final = """\
<div id="scroll"><table aria-label="Tasks of the run"><tbody id="rows"></tbody></table></div>
<p id="note" role="status">The run is under way.</p>"""
_SCRIPT: Final = """
"use strict";
const CELLS = ["status", "mode", "time", "tokens", "cost", "about"];
const KINDS = new Set(["ok", "bad", "busy", "wait"]);
const root = document.documentElement;
const note = document.getElementById("note");

function post(message) {
  window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
}

function cell(kind, name, text) {
  const made = document.createElement(kind);
  made.className = name;
  made.textContent = text;
  return made;
}

function drawRow(row) {
  const line = document.createElement("tr");
  if (KINDS.has(row.kind)) line.className = row.kind;
  const name = cell("th", "name", row.branch + row.name);
  name.scope = "row";
  line.append(name, ...CELLS.map((it) => cell("td", it, row[it])));
  return line;
}

function draw(result) {
  const tree = result?._meta?.["@TREE@"];
  document.getElementById("rows").replaceChildren(...(tree?.rows ?? []).map(drawRow));
  note.textContent = tree ? tree.footer : "The result has no tree.";
}

function setContext(context) {
  if (context?.theme === "light" || context?.theme === "dark") {
    root.style.colorScheme = context.theme;
  }
  for (const [name, value] of Object.entries(context?.styles?.variables ?? {})) {
    if (name.startsWith("--") && value) root.style.setProperty(name, value);
  }
}

function hear({ id, method, params, result }) {
  switch (method) {
    case undefined:
      if (id !== 1 || !result) return;
      setContext(result.hostContext);
      post({ method: "ui/notifications/initialized", params: {} });
      new ResizeObserver(tellSize).observe(document.body);
      return;
    case "ui/notifications/tool-result":
      return draw(params);
    case "ui/notifications/tool-cancelled":
      note.textContent = "The call was cancelled.";
      return;
    case "ui/notifications/host-context-changed":
      return setContext(params);
    case "ui/resource-teardown":
    case "ping":
      return post({ id, result: {} });
    default:
      if (id !== undefined) post({ id, error: { code: -32601, message: "Method not found" } });
  }
}

function tellSize() {
  const { width, height } = document.body.getBoundingClientRect();
  const params = { width: Math.ceil(width), height: Math.ceil(height) };
  post({ method: "ui/notifications/size-changed", params });
}

window.addEventListener("message", (event) => {
  if (event.source === window.parent && event.data?.jsonrpc === "2.0") hear(event.data);
});
post({
  id: 1,
  method: "ui/initialize",
  params: {
    protocolVersion: "2026-01-26",
    appInfo: { name: "orchestrator-tree", version: "@VERSION@" },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
  },
});
"""


def tree_page(key: str) -> str:
    """Return the page, which finds a tree by its key in the metadata of a result."""
    script = _SCRIPT.replace("@TREE@", key).replace("@VERSION@", VERSION)
    return html_page("Tasks of the run", _BODY, style=_STYLE, script=script)
