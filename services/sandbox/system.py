"""system: what a sandboxed command sees of the machine: programs and configuration, read only, without secrets."""

import os
import stat
from functools import cache
from pathlib import Path

from interlock.services.sandbox.mounts import Mounts

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/snap"),
    *("/nix", "/gnu", "/run/current-system"),
)
"""Where programs and their configuration lie, also on NixOS and Guix. What isn't named here isn't there: /var, /srv,
/mnt, /media, /root, /home, other folders of the root, and the sockets in /run (SSH agent, D-Bus, Docker)."""
_SCRATCH = ("/tmp", "/var/tmp", "/run")
_RESOLVER = "/etc/resolv.conf"


def system_mounts() -> Mounts:
    """Without /proc and /dev, which bubblewrap makes anew."""
    mounts = Mounts()
    for folder in _SCRATCH:
        mounts.scratch(Path(folder))
    for folder in map(Path, _SYSTEM):
        if folder.exists():
            mounts.system(folder)
    resolver = Path(os.path.realpath(_RESOLVER))  # often in /run
    if resolver.is_file() and not resolver.is_relative_to("/etc"):
        mounts.read_only(resolver)
    for path in _private_configuration():
        mounts.hide(path)
    return mounts


@cache
def _private_configuration() -> tuple[Path, ...]:
    """What in /etc not everybody may read, such as password hashes and keys: its owner, here root, still could."""
    found: list[Path] = []
    pending = ["/etc"]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_symlink() or not os.access(entry.path, os.R_OK):
                continue
            if not entry.stat(follow_symlinks=False).st_mode & stat.S_IROTH:
                found.append(Path(entry.path))
            elif entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
    return tuple(found)
