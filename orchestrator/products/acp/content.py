"""Prompts of an editor as messages of a session, and messages as content of the editor."""

import base64
import binascii
from collections.abc import Iterator, Sequence

from orchestrator.agents import DefinitionError, Part
from orchestrator.products.acp import schema


def read_prompt(blocks: Sequence[schema.ContentBlock]) -> tuple[str, tuple[Part, ...]]:
    """Return the text and the parts of a prompt.

    Raises:
        DefinitionError: it has sound, or data that is not Base64, or nothing at all.
    """
    texts: list[str] = []
    parts: list[Part] = []
    for block in blocks:
        match block:
            case schema.Text(text=text):
                texts.append(text)
            case schema.Image(data=data, mime_type=kind):
                parts.append(_part(data, kind))
            case schema.Audio():
                raise DefinitionError("a prompt has no sound here: promptCapabilities say so")
            case schema.ResourceLink(name=name, uri=uri):
                texts.append(f"[{name}]({uri})")
            case schema.EmbeddedResource(resource=resource):
                if resource.text is not None:
                    texts.append(f"Content of {resource.uri}:\n{resource.text}")
                else:
                    kind = resource.mime_type or "application/octet-stream"
                    name = resource.uri.rpartition("/")[2]
                    parts.append(_part(resource.blob or "", kind, name))
    text = "\n\n".join(it for it in texts if it)
    if not text and not parts:
        raise DefinitionError("the prompt is empty")
    return text, tuple(parts)


def _part(data: str, kind: str, name: str = "") -> Part:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise DefinitionError(f"the data of {name or kind} is not Base64: {exc}") from exc
    return Part(kind.partition(";")[0].strip().lower(), data=content, name=name)


def show_message(text: str, parts: Sequence[Part]) -> Iterator[schema.ContentBlock]:
    """Return a message as content; of its files, images alone."""
    if text:
        yield schema.Text(text=text)
    for part in parts:
        if part.is_image and part.data:
            data = base64.b64encode(part.data).decode()
            yield schema.Image(data=data, mime_type=part.media_type)
