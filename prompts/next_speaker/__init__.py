"""next_speaker: prompts of the pipeline."""
