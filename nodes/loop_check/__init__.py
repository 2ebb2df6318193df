"""loop_check: nodes of the pipeline."""
