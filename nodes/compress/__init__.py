"""compress: nodes of history compression (`pipelines.md` §7)."""
