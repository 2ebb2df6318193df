"""inside: a program that mounts a view over a workspace for one command, and becomes that command.

The mount is an overlay in namespaces of the program's own: what the command writes lands in a folder beside it, nobody
else sees it, and it is gone with the command. Arguments: a file with the plan, the command's words. Without words it
only tries.
"""

import ctypes
import json
import os
import sys
from typing import NoReturn

from put_back import File, put_back  # pyright: ignore[reportMissingImports, reportUnknownVariableType] - beside this file

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_C = ctypes.CDLL(None, use_errno=True)


def main(plan: str, *command: str) -> NoReturn:
    """Enter the view and run the command; exits with 125 and a line if there can't be one."""
    try:
        with open(plan, encoding="utf-8") as file:  # noqa: PTH123 - starts in milliseconds without pathlib
            view = json.load(file)
        _unshare()
        for root, upper, work in view["folders"]:
            if view["memory"]:
                _mount(b"tmpfs", os.path.dirname(upper), b"tmpfs", "mode=700")  # noqa: PTH120 - see above
                os.mkdir(upper)  # noqa: PTH102 - see above
                os.mkdir(work)  # noqa: PTH102 - see above
            held = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for folder in (root, upper, work)]
            lower, up, at = (f"/proc/self/fd/{one}" for one in held)  # a path may hold colons and commas
            _mount(b"overlay", root, b"overlay", f"lowerdir={lower},upperdir={up},workdir={at},userxattr")
            for one in held:
                os.close(one)
        put_back(view["folders"][0][0], (File(*one) for one in view["files"]))
        os.chdir(view["folders"][0][0])
    except OSError as error:
        sys.stderr.write(f"No view of the workspace: {error}\n")
        os._exit(125)
    if not command:
        os._exit(0)
    os.execvp(command[0], command)


def _unshare() -> None:
    user, group = os.getuid(), os.getgid()
    if _C.unshare(_NEWUSER | _NEWNS):
        raise _error("unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - see above
            file.write(text)
    if _C.mount(b"none", b"/", None, _PRIVATE, None):
        raise _error("mount")


def _mount(source: bytes, target: str, kind: bytes, options: str) -> None:
    if _C.mount(source, os.fsencode(target), kind, 0, options.encode()):
        raise _error(f"mount {kind.decode()}")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
