"""The endpoints of the REST API below `/api`. Each calls the verb that it names.

A module has the nouns that are read together; the first line of each says which:

- `agents`: agents, messages, turns, contexts, schedules
- `groups`: groups, members, transcripts
- `memory`: blocks, passages, search, and the memory as a whole_list
- `sources`: folders of documents, files
- `tools`: tools, rules, approvals, grants
- `people`: people, rooms, tokens, users, logins, constellations
- `operations`: status, halts, notices, deliveries, spending, audit log, configuration, keys,
  MCP servers, backups
"""

from __future__ import annotations

from asterism.api.endpoints import DECLARED, ApiEndpoint
from asterism.api.routes import agents, groups, memory, operations, people, sources, tools

__all__ = ["ENDPOINTS", "agents", "groups", "memory", "operations", "people", "sources", "tools"]

ENDPOINTS: tuple[ApiEndpoint, ...] = tuple(sorted(DECLARED, key=lambda one: one.path))
"""In the order of their paths, wherever they are declared: what is written out in a path comes
before a parameter in its place, which would match it as well."""
