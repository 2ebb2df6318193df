"""session: `interlock` in a terminal: one place to prompt, watch, decide and look; every run in it is a durable one."""
