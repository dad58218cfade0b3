"""What an agent promises as its answer: a Python type or a JSON Schema, and the check of an answer against it."""
