"""session: `interlock` in a terminal: one place to prompt, watch, decide and look, on durable runs."""
