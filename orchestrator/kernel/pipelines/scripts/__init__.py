"""Scripts: programs over agents that a model writes, run by the interpreter Monty.

A script is a task, and each call in it is a child of that task. It is a pipeline: after a crash it
runs again, and finds its children by their requests. Nothing of a script runs in our process: Monty
interprets it in a worker, without files, network, processes or a clock that moves.
"""
