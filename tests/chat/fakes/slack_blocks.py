"""Slack's check of message blocks: one wrong key refuses the whole message."""

import json
from typing import Any

LONGEST_BLOCKS = 13_200
"""How long the JSON of blocks may be, as people have found out: Slack does not say."""
STYLES = {"bold", "italic", "strike", "code"}
SCHEMES = ("http://", "https://", "mailto:")


class BlockError(Exception):
    """Slack refuses blocks."""

    def __init__(self, message: str, code: str = "invalid_blocks") -> None:
        super().__init__(message)
        self.code = code


def check_blocks(blocks: Any) -> None:
    """Raise if Slack would refuse the blocks of a message."""
    if not isinstance(blocks, list):
        raise BlockError("blocks is no array", "invalid_blocks_format")
    if len(blocks) > 50:
        raise BlockError("no more than 50 items allowed")
    if len(json.dumps(blocks, ensure_ascii=False)) > LONGEST_BLOCKS:
        raise BlockError("the blocks are too long", "msg_blocks_too_long")
    actions: list[str] = []
    for block in blocks:
        match block.get("type"):
            case "rich_text":
                _check_rich_text(block)
            case "section":
                _keys(block, {"text"}, {"block_id", "accessory", "expand"})
                _check_text(block["text"], 3_000)
            case "actions":
                _keys(block, {"elements"}, {"block_id"})
                _items(block["elements"], 25)
                for button in block["elements"]:
                    _check_button(button)
                    actions.append(button["action_id"])
            case other:
                raise BlockError(f"unsupported type: {other}")
    if len(set(actions)) < len(actions):
        raise BlockError("`action_id` already exists in this message")


def _check_rich_text(block: dict[str, Any]) -> None:
    _keys(block, {"elements"}, {"block_id"})
    _items(block["elements"], 10_000)
    for element in block["elements"]:
        match element.get("type"):
            case "rich_text_section" | "rich_text_quote":
                _keys(element, {"elements"}, {"border"})
                _check_inline(element["elements"])
            case "rich_text_preformatted":
                _keys(element, {"elements"}, {"border", "language"})
                _check_inline(element["elements"])
                if any("style" in it for it in element["elements"]):
                    raise BlockError("preformatted text has no style")
            case "rich_text_list":
                _keys(element, {"elements", "style"}, {"indent", "offset", "border"})
                if element["style"] not in {"bullet", "ordered"}:
                    raise BlockError(f"no such list: {element['style']}")
                _number(element.get("indent", 0), 8)
                _number(element.get("offset", 0), 1_000_000_000)
                _items(element["elements"], 10_000)
                for item in element["elements"]:
                    if item.get("type") != "rich_text_section":
                        raise BlockError("an item of a list is a section")
                    _keys(item, {"elements"}, set())
                    _check_inline(item["elements"])
            case other:
                raise BlockError(f"unsupported rich text: {other}")


def _check_inline(elements: Any) -> None:
    _items(elements, 10_000)
    for element in elements:
        match element.get("type"):
            case "text":
                _keys(element, {"text"}, {"style"})
            case "link":
                _keys(element, {"url"}, {"text", "style", "unsafe"})
                if not element["url"].startswith(SCHEMES) or len(element["url"]) > 3000:
                    raise BlockError(f"invalid url: {element['url']}")
            case other:
                # Mentions are elements, too: ours never makes one of what a model says.
                raise BlockError(f"unsupported element: {other}")
        if not element.get("text", "x"):
            raise BlockError("must be more than 0 characters")
        style = element.get("style", {"bold": True})
        if not style or not set(style) <= STYLES or set(style.values()) != {True}:
            raise BlockError(f"invalid style: {style}")


def _check_button(button: dict[str, Any]) -> None:
    if button.get("type") != "button":
        raise BlockError(f"unsupported element: {button.get('type')}")
    _keys(button, {"action_id", "text"}, {"value", "style", "url", "confirm"})
    if button["text"].get("type") != "plain_text":
        raise BlockError("the text of a button is plain")
    _check_text(button["text"], 75)
    if not 0 < len(button["action_id"]) <= 255 or len(button.get("value", "")) > 2_000:
        raise BlockError("must be less than 2001 characters")


def _check_text(text: dict[str, Any], longest: int) -> None:
    allowed = {"emoji"} if text.get("type") == "plain_text" else {"verbatim"}
    _keys(text, {"text"}, allowed)
    if text["type"] not in {"plain_text", "mrkdwn"}:
        raise BlockError(f"no such text: {text['type']}")
    if not 0 < len(text["text"]) <= longest:
        raise BlockError(f"must be less than {longest + 1} characters")


def _keys(found: dict[str, Any], required: set[str], allowed: set[str]) -> None:
    if missing := required - set(found):
        raise BlockError(f"missing required field: {min(missing)}")
    if unknown := set(found) - required - allowed - {"type"}:
        raise BlockError(f"invalid additional property: {min(unknown)}")


def _items(found: Any, most: int) -> None:
    if not isinstance(found, list) or not 0 < len(found) <= most:
        raise BlockError(f"between 1 and {most} items allowed")


def _number(found: Any, most: int) -> None:
    if type(found) is not int or not 0 <= found <= most:
        raise BlockError(f"must be between 0 and {most}")
