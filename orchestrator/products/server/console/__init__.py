"""The web console: its page, its sign-in, and one stream of events for each browser.

The page is a client like any other. A one-time link becomes a cookie, which is a key, and the
page acts through the routes of `server/api`. A *topic* (a run, a task, the runs, the approvals)
reads facts and marks the values they change. The stream sends the current value when it is
durable, so a message is never stale, and a page resumes by the number of its last message. A page
that crashes, or a stream that fails, ends only itself.
"""
