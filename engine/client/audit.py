"""audit: the record of who decided what, for the commands that show and check it."""

from interlock.engine.optional_rooms import require_optional_part

require_optional_part("audit", "Reading the audit needs", "engine/audit")

from interlock.engine.audit import (  # noqa: E402 (without the folder, people read the line above)
    find_audit_problems,
    read_audit_records,
    sign_newest_record,
)

__all__ = ["find_audit_problems", "read_audit_records", "sign_newest_record"]
