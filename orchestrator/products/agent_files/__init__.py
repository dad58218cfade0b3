"""Agents from files: `*.md` with front matter, and `team.yaml`.

A file is data: nothing in it is run, imported or looked up in the environment.
"""
