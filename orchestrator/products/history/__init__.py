"""Finished runs: replay, fork, comparison, simulation, reports and exports."""
