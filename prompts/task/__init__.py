"""task: the twelve sections of the task loop's system prompt, some in several files (`pipelines.md` §13)."""
