"""tools: what a model can call, one tool per file; `table` lists them all."""
