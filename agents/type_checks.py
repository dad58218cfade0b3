"""A type test for values that no type checker has seen: what users pass in and tools return."""


def has_type(value: object, *types: type[object]) -> bool:
    """Return whether a value is of one of these types.

    Unlike `isinstance`, it does not narrow: where the annotation promises the type already, a
    type checker would call the test unnecessary and the code behind it unreachable.
    """
    return isinstance(value, types)
