"""MCP: external servers, their tools, resources and prompts. The SDK is imported when the first server starts."""
