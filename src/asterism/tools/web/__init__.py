"""The tool `web`: pages of the open internet as Markdown, and a search for them."""

from asterism.tools.web.tool import TOOLS, web

__all__ = ["TOOLS", "web"]
