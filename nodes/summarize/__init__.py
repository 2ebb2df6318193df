"""summarize: nodes that shorten long tool outputs (`pipelines.md` §9)."""
