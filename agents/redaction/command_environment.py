"""The environment of what an agent starts: without the secrets of this process.

What is secret is judged by `agents.redaction.redactor`, so what a subprocess is not given no text may hold.
"""

from collections.abc import Iterable, Mapping

from agents.redaction.redactor import is_secret_variable


def without_secret_variables(
    environ: Mapping[str, str],
    *,
    declared: Iterable[str] = (),
    hand_on: Iterable[str] = (),
) -> dict[str, str]:
    """Return an environment without its secret variables.

    Args:
        environ: the variables of this process.
        named: variables that are secret whatever they are called.
        hand_on: variables that are given to the subprocess all the same.
    """
    declared, hand_on = frozenset(declared), frozenset(hand_on)
    return {
        name: value
        for name, value in environ.items()
        if name in hand_on
        or not is_secret_variable(name, value, declared=name in declared)
    }
