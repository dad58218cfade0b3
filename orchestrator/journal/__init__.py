"""Journals: the port, and one leaf for each place they are kept."""
