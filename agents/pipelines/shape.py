"""The value `Shape`: how the parts of a pipeline work together, for its picture."""

from typing import Literal

import attrs


@attrs.frozen(kw_only=True)
class Shape:
    """How a combinator puts its parts together."""

    kind: str
    """The word of the combinator, such as `map_each`."""
    flow: Literal["row", "column", "loop"] = "column"
    """`row`: each part passes its output to the next. `column`: the parts get the same input.
    `loop`: the second part sends the output of the first back."""
    note: str = ""
    """The limit or the rule of the combinator, in a few words."""
    stacked: int = 0
    """How many of the first parts run many times at once."""
    labels: tuple[str, ...] = ()
    """A word for each part, such as the name of a route."""
