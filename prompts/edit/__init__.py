"""edit: what helper models are asked when an edit's old string isn't in its file (`pipelines.md` §5)."""
