"""A place for programs that are not trusted: their own view of files, no network, firm bounds."""

from __future__ import annotations

from asterism.sandbox.sandbox import Running, Sandbox, find_sandbox
from asterism.sandbox.view import Bounds, Kind, Ran, View

__all__ = ["Bounds", "Kind", "Ran", "Running", "Sandbox", "View", "find_sandbox"]
