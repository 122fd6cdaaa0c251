"""MCP servers: their tools are offered to agents as if they were our own, and trusted less."""
