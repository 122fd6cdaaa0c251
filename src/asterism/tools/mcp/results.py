"""Results: what a server answered to a call, as the text that a model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from asterism.errors import ToolError

if TYPE_CHECKING:
    import mcp_types

LONGEST = 50_000
"""Characters of a result that a model is given."""
_MOST_PARTS = 200


def result_text(name: str, result: mcp_types.CallToolResult) -> str:
    """Return a result as text; raise `ToolError` with the server's words if the call failed."""
    parts = [_part(one) for one in result.content[:_MOST_PARTS]]
    if len(result.content) > _MOST_PARTS:
        parts.append(f"({len(result.content) - _MOST_PARTS:,} more parts are not shown.)")
    texts = [part for part in parts if part]
    structured = result.structured_content
    if structured is not None and not any(_says(text, structured) for text in texts):
        texts.append(_json(structured))
    whole = shortened("\n\n".join(texts))
    if result.is_error:
        raise ToolError(whole or f"{name} failed without saying why.")
    return whole or "Done; there was nothing to report."


def shortened(text: str, most: int = LONGEST) -> str:
    """Return a text that a model can be given, with a note of what was left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n(Cut: the first {most:,} of {len(text):,} characters are shown.)"


def _part(part: mcp_types.ContentBlock) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            size = len(part.data) * 3 // 4
            return f"[{part.type} {part.mime_type}, {size:,} bytes, which cannot be shown here]"
        case "resource_link":
            about = f": {part.description}" if part.description else ""
            kind = f", {part.mime_type}" if part.mime_type else ""
            return f"[resource {part.uri}{kind}{about}]"
        case "resource":
            return _resource(part.resource)


def _resource(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return f"[resource {resource.uri}]\n{text}"
    size = len(getattr(resource, "blob", "")) * 3 // 4
    kind = resource.mime_type or "of an unknown kind"
    return f"[resource {resource.uri}, {kind}, {size:,} bytes, which cannot be shown here]"


def _says(text: str, structured: Any) -> bool:
    """Tell whether a text is the structured content, which servers repeat for old clients."""
    if text[:1] not in '{["tfn-0123456789':
        return False
    try:
        return bool(orjson.loads(text) == structured)
    except orjson.JSONDecodeError:
        return False


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
