"""Random digits for the ids of messages and tasks, without a system call for each.

Such an id only has to differ from all others: it opens nothing. The generator is seeded by the
system, and again in a forked process, which would draw the same digits otherwise.
"""

import os
from random import Random
from typing import Final

_RANDOM: Final = Random()  # noqa: S311 (the id is no secret)
os.register_at_fork(after_in_child=_RANDOM.seed)

draw_bits: Final = _RANDOM.getrandbits
"""Returns a random number of this many bits."""
