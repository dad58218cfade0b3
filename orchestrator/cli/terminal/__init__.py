"""The terminal: console, keyboard, tables, questions."""
