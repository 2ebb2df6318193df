"""instructions: what `fetch_instructions` returns, a file a task."""
