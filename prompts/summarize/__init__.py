"""summarize: prompts for shortened tool outputs."""
