"""matcher: where an edit goes in a text, and what comes there."""
