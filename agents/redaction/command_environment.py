"""The environment of an agent's commands: that of this process, without its secrets.

The redactor decides which variables are secret, so a value is hidden from commands and from texts
alike.
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
        declared: variables that are secret whatever their names.
        hand_on: variables that commands get all the same.
    """
    declared, hand_on = frozenset(declared), frozenset(hand_on)
    return {
        name: value
        for name, value in environ.items()
        if name in hand_on
        or not is_secret_variable(name, value, declared=name in declared)
    }
