"""tags: calls that a model writes as tags in its text."""
