"""A model that streams its answers when a test lets it, and keeps the requests."""

import attrs
import trio

from orchestrator.agents import Usage
from orchestrator.testing import SpyModel, StreamingModel
from orchestrator.testing.models import Piece


@attrs.frozen(eq=False)
class Lingering:
    """Works until it is cancelled, and then still has something to do."""

    cancelled: trio.Event = attrs.Factory(trio.Event)
    may_end: trio.Event = attrs.Factory(trio.Event)

    async def work(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()
            with trio.move_on_after(10, shield=True):
                await self.may_end.wait()


def speaker(*answers: Piece | tuple[Piece, ...]) -> SpyModel:
    """Return a model that streams these answers, one a call, each in its pieces."""
    pieces = [it if isinstance(it, tuple) else (it,) for it in answers]
    usage = Usage(calls=1, input_tokens=10, output_tokens=1)
    return SpyModel(StreamingModel(pieces, name="speaker", usage=usage))
