"""tools: what a model can call, one kind of tool per file; `table` lists them all."""
