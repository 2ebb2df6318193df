"""init: prompts of the workflow that writes the memory file of a repository."""
