"""Several servers with the same journals: each journal has one writer, and requests are sent to
it.
"""
