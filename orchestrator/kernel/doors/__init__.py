"""Doors: how the outside talks to a session. Each door declares whether it can deliver later.

`request.py` has `DeliveryCapability.NONE`, for a client that waits in the response. `kept.py` has
POLL, for a client that comes back, and PUSH, for a webhook. No other door of a request decides
this.
"""
