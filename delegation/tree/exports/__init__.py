"""Trees for other programs. Pure: from a tree to a string, the same for the same facts.

Whatever agents say is hostile here: each format escapes in its own way, and none passes control
characters on. What has not ended is drawn as if it went on until `now`.

| format | size |
|---|---|
| text | every task is a line; with `rows`, the folded tree |
| mermaid, dot, svg | the folded tree: at most `NODES` boxes, and a line that says what is folded |
| graphml, json, trace | every task, whatever the size |
"""
