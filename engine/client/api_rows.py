"""api_rows: rows of what programs see through the API, for the front end that serves them."""

from interlock.engine.store.api_rows import (
    ApiRow,
    find_api_row,
    has_separate_api_rows_file,
    insert_api_row,
    list_api_rows,
    remove_api_row,
    update_api_row_if_exists,
)

__all__ = [
    "ApiRow",
    "find_api_row",
    "has_separate_api_rows_file",
    "insert_api_row",
    "list_api_rows",
    "remove_api_row",
    "update_api_row_if_exists",
]
