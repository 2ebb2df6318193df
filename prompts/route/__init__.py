"""route: prompts of the pipeline."""
