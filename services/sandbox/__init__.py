"""sandbox: shell commands in bubblewrap, on a read-only system and without network, secrets or a way to more rights."""

from interlock.services.sandbox.sandbox import Sandbox, check_here, open_sandbox

__all__ = ["Sandbox", "check_here", "open_sandbox"]
