"""The process of `orchestrator serve`: its options, its journals, and the lines it prints."""
