"""fleet: runs in PostgreSQL, driven by workers on any number of hosts."""
