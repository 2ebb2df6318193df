"""route: nodes of the pipeline."""
