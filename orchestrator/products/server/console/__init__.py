"""The web console: a page, signing in to it, and the one stream of events of a browser.

What the page does to runs it does by the routes of `server/api`, like any client. A page that
crashes, or a stream that fails, ends nothing but itself.
"""
