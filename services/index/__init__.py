"""index: the searchable content of the workspace: cut into chunks, stored in the state directory, and queried."""
