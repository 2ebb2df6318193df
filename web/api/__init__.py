"""api: the HTTP API that clients of LangGraph's server speak, on this user's runs: assistants are workflows, threads
are runs, and runs are drives."""
