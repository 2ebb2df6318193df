"""api_rows: rows of what programs see through the API, for the front end that serves them."""

from interlock.engine.store.api_rows import (
    ApiRow,
    are_in_own_file,
    change,
    list_api_rows,
    remove_api_row,
    serve,
    served,
)

__all__ = ["ApiRow", "are_in_own_file", "change", "list_api_rows", "remove_api_row", "serve", "served"]
