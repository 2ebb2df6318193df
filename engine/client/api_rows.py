"""api_rows: rows of what programs see through the API, for the front end that serves them."""

from interlock.engine.store.api_rows import Served, all_served, change, is_beside, serve, served, unserve

__all__ = ["Served", "all_served", "change", "is_beside", "serve", "served", "unserve"]
