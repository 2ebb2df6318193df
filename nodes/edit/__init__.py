"""edit: nodes of edit correction."""
