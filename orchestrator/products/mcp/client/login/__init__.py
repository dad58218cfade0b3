"""Logins at servers: a person makes one in a browser, and processes keep it valid."""
