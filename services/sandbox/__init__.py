"""sandbox: shell commands in bubblewrap, on a read-only system and without network, secrets or a way to more rights."""

from interlock.services.sandbox.open import check_here, open_sandbox
from interlock.services.sandbox.processes import SandboxedProcesses
from interlock.services.sandbox.sandbox import Sandbox

__all__ = ["Sandbox", "SandboxedProcesses", "check_here", "open_sandbox"]
