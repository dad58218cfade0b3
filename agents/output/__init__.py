"""The output of an agent: a Python type or a JSON Schema, and the check of answers against it."""
