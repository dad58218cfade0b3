"""Exports of trees. Pure: from a tree to a string, the same for the same facts.

The texts of agents are hostile here: each format escapes in its own way, and none passes control
characters on. A task that has not ended is drawn until `now`.

| format | size |
|---|---|
| text | every task is a line; with `rows`, the collapsed tree |
| mermaid, dot, svg | the collapsed tree: at most `MAX_BOXES` boxes, and a line about the rest |
| graphml, json, trace | every task, whatever the size |
"""
