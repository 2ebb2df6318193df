"""acp: the editor's front end: runs as sessions of the Agent Client Protocol, on stdin and stdout."""
