"""The Agent Client Protocol: a team in an editor, over stdin and stdout.

`connection` carries messages, `team` answers requests, a `conversation` is one open session, and a
`view` shows its events to the editor.
"""
