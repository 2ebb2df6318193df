"""main: the sections of the main loop's system prompt (`pipelines.md` §13)."""
