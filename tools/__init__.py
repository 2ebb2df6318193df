"""tools: what a model can call, one file a tool; `table` lists them all."""
