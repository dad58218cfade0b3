"""`board`: tasks of one parent post, claim, finish and read shared items with it.

Imported late: most agents have no board.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, assert_never

import msgspec

from orchestrator.agents import Tool, ToolCall, ToolError, arguments_schema, read_arguments
from orchestrator.delegation.board import MOST_ITEMS, Board
from orchestrator.delegation.events import StateChanged
from orchestrator.delegation.tools.results import as_json

BOARD: Final = "board"
MOST_TEXT: Final = 1_000
SHOWN_RESULT: Final = 300
"""How many characters of a result are in the list of all items."""
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_TEXT)]


class UseBoard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `board`."""

    action: Annotated[
        Literal["post", "claim", "finish", "read"],
        msgspec.Meta(
            description="post: add items. claim: take a free item, so that no other task works on"
            " it. finish: an item that you claimed is done. read: all items, or one with its whole"
            " result."
        ),
    ]
    items: Annotated[
        tuple[Text, ...],
        msgspec.Meta(description="post: the new items, each in full.", max_length=MOST_ITEMS),
    ] = ()
    item: Annotated[
        int | None,
        msgspec.Meta(description="The number of an item. claim: left out, the first free one."),
    ] = None
    result: Annotated[
        str, msgspec.Meta(description="finish: what came of it.", max_length=2 * MOST_TEXT)
    ] = ""


def board_tool(
    board: Board,
    *,
    prefix: str,
    post: Callable[[StateChanged], object],
    wait_durable: Callable[[], Awaitable[None]],
) -> Tool:
    """Return the tool for one task; `prefix` tells its calls apart from the calls of others."""

    async def run(call: ToolCall) -> str:
        arguments = read_arguments(call, UseBoard)
        key = f"{prefix}/{call.id}"
        # Decided and posted without a wait between: no two tasks claim one item.
        if (change := _change(board, arguments, key)) is not None:
            post(change)
        await wait_durable()
        return as_json(_answer(board, arguments, key))

    return Tool(
        name=BOARD,
        description="A board of items that you share with the other tasks of your parent. An item"
        " that you claimed is free again if you end without finishing it.",
        parameters=_parameters(),
        run=run,
        # A call that a crash interrupted finds the items that it has posted.
        idempotent=True,
        acts_outside=False,
    )


def _change(board: Board, arguments: UseBoard, key: str) -> StateChanged | None:
    match arguments.action:
        case "post":
            if not arguments.items:
                raise ToolError("post something, in `items`")
            return board.post(arguments.items, key)
        case "claim":
            return board.claim(arguments.item, key)
        case "finish":
            if arguments.item is None:
                raise ToolError("name the item that is finished, in `item`")
            return board.finish(arguments.item, arguments.result, key)
        case "read":
            return None
        case _:
            assert_never(arguments.action)


def _answer(board: Board, arguments: UseBoard, key: str) -> Mapping[str, Any]:
    shown = {it.number: board.shown(it) for it in board.items}
    free = sum(it.state == "free" for it in shown.values())
    match arguments.action:
        case "post":
            return {"posted": [it.number for it in board.items if it.posted == key]}
        case "claim":
            mine = [shown[it.number] for it in board.items if it.claimed == key]
            claimed = [{"item": it.item, "text": it.text} for it in mine]
            return {"claimed": claimed[0] if claimed else None, "free": free}
        case "finish":
            unfinished = sum(it.state != "finished" for it in shown.values())
            return {"finished": arguments.item, "free": free, "unfinished": unfinished}
        case "read":
            if arguments.item is not None:
                if arguments.item not in shown:
                    raise ToolError(f"the board has no item {arguments.item}")
                return {"items": [msgspec.to_builtins(shown[arguments.item])]}
            return {"items": [_short(msgspec.to_builtins(it)) for it in shown.values()]}
        case _:
            assert_never(arguments.action)


def _short(item: dict[str, Any]) -> dict[str, Any]:
    result = item.get("result", "")
    if len(result) <= SHOWN_RESULT:
        return item
    return {**item, "result": f"{result[:SHOWN_RESULT]}… (read the item to see all of it)"}


@cache
def _parameters() -> Mapping[str, Any]:
    return arguments_schema(UseBoard)
