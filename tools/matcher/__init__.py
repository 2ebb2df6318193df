"""matcher: find where an edit goes in a text, and compute the replacement."""
