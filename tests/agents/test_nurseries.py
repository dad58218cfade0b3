"""One error comes out of a nursery, however deep it was raised."""

import pytest
import trio

from orchestrator.agents import raising_one_error


async def raise_all(*errors: BaseException) -> None:
    """Raise these out of one nursery, in this order."""

    async def raise_after(seconds: float, error: BaseException) -> None:
        # Shielded, because the first error cancels the others.
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        raise error

    with raising_one_error():
        async with trio.open_nursery() as nursery:
            for seconds, error in enumerate(errors):
                nursery.start_soon(raise_after, seconds, error)


async def chain(depth: int, error: Exception | None) -> None:
    """Nest nurseries as joined tasks do, and end with this error or wait for ever."""
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            if depth > 1:
                nursery.start_soon(chain, depth - 1, error)
            elif error is not None:
                raise error
            else:
                await trio.sleep_forever()


async def test_the_only_error_comes_out_as_itself() -> None:
    error = ValueError("a")

    with pytest.raises(ValueError, match="a") as caught:
        await raise_all(error)

    assert caught.value is error
    assert not hasattr(error, "__notes__")


async def test_the_first_error_is_raised_with_notes_of_the_others() -> None:
    with pytest.raises(ValueError, match="a") as caught:
        await raise_all(ValueError("a"), KeyError("b"), OSError("c"))

    assert caught.value.__notes__ == ["also: KeyError: 'b'", "also: OSError: c"]


async def test_an_error_gets_no_note_of_itself() -> None:
    """Two tasks that wait for one thing may fail with the very same error."""
    error = ValueError("a")

    with pytest.raises(ValueError, match="a"):
        await raise_all(error, error)

    assert not hasattr(error, "__notes__")


async def test_an_error_counts_more_than_the_cancellations_it_causes() -> None:
    async def fail_beside_a_sleeper() -> None:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                nursery.start_soon(raise_all, ValueError("a"))

    with pytest.raises(ValueError, match="a") as caught:
        await fail_beside_a_sleeper()

    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("stop", [KeyboardInterrupt("stop"), SystemExit("stop")])
async def test_a_request_to_stop_counts_more_than_an_error(stop: BaseException) -> None:
    """As a note on an error that is handled, it would be lost."""
    with pytest.raises(type(stop), match="stop") as caught:
        await raise_all(ValueError("a"), stop)

    assert caught.value.__notes__ == ["also: ValueError: a"]


async def test_an_error_raised_from_a_group_keeps_its_own_cause_and_context() -> None:
    """The group is no cause of its own part."""
    error, cause, context = ValueError("a"), KeyError("b"), OSError("c")
    error.__cause__, error.__context__ = cause, context

    with pytest.raises(ValueError, match="a"):
        await raise_all(error)

    assert (error.__cause__, error.__context__) == (cause, context)


async def test_an_error_without_a_context_gets_no_context() -> None:
    with pytest.raises(ValueError, match="a") as caught:
        await raise_all(ValueError("a"))

    assert caught.value.__context__ is None


async def test_an_exception_group_of_the_program_is_kept() -> None:
    """Only the group of this nursery is ours to open."""
    mine = ExceptionGroup("mine", [ValueError("a"), KeyError("b")])

    with pytest.raises(ExceptionGroup) as caught:
        await raise_all(mine)

    assert caught.value.message == "mine"
    assert caught.value.exceptions == mine.exceptions


async def test_a_cancellation_comes_out_as_a_cancellation() -> None:
    bare = False
    with trio.move_on_after(5) as scope:
        try:
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    nursery.start_soon(trio.sleep_forever)
        except trio.Cancelled:
            bare = True
            raise

    assert bare
    assert scope.cancelled_caught


def test_an_error_outside_of_a_group_passes_unchanged() -> None:
    with pytest.raises(ValueError, match="a"), raising_one_error():
        raise ValueError("a")


async def test_an_error_crosses_a_thousand_nurseries() -> None:
    """Groups in groups end trio on Python 3.11 after some 330 levels."""
    with pytest.raises(ValueError, match="from the bottom"):
        await chain(1000, ValueError("from the bottom"))


async def test_a_cancellation_crosses_a_thousand_nurseries() -> None:
    with trio.move_on_after(5) as scope:
        await chain(1000, None)

    assert scope.cancelled_caught
    assert trio.current_time() == 5
