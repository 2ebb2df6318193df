"""compress: prompts of history compression."""
