"""context: the message that stands before the first prompt: environment, repository, memory files."""
