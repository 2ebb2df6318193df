"""MCP: servers of others, their tools, resources and prompts. The SDK is imported when a server is first started."""
