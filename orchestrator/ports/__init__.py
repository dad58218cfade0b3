"""The ports: every name of the kernel that products and the command line may import.

A product imports the kernel through these modules, through `orchestrator.agents` and through
`orchestrator.delegation`. `make imports` checks it.
"""
