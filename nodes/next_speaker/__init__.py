"""next_speaker: nodes of the pipeline."""
