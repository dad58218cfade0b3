"""Lending: the writer of a journal lends tool calls and turns to workers, and alone decides.

The writer sends a dispatch when the call is durable. A worker asks to begin under a name of its
own. The writer accepts one try of one attempt, and posts `CallPlaced` before it answers: a call
without that fact has never run. The writer acknowledges an end when its answer is durable, so the
next writer receives an end that this one could not record. If the worker of a call is gone, the
writer sends the call again if its tool may run twice, and otherwise breaks it off.

An agent with a place lends its *turn*: the worker that takes the first call runs all calls of
that turn in one context (`lent_turn.py`), while the loop stays with the writer. If that worker is
gone, the state of its tools is gone, so the task ends as lost, or restarts (decision 28).
"""
