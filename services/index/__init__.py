"""index: what of the workspace can be searched: cut into chunks, kept in the state directory, found again."""
