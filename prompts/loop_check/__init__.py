"""loop_check: prompts of the pipeline."""
