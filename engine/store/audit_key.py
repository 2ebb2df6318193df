"""audit_key: the ed25519 key of the audit's chain: made at the first start, or a user's (`INTERLOCK_AUDIT_KEY`)."""

import base64
import hashlib
import os
import secrets
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interlock.services.files.folders import CLOSED_FILE, private_directory
from interlock.state.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VARIABLE = "INTERLOCK_AUDIT_KEY"
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
"""What precedes the 32 bytes of an ed25519 key in PKCS #8."""


class Key(NamedTuple):
    path: Path
    id: str
    """Eight hex digits."""
    mac: bytes
    """What records are made with; derived from the file."""


def key_of(folder: Path) -> Key:
    """The key of a store; made if it has none. Raises `StoreError` in one line."""
    chosen = os.environ.get(VARIABLE)
    return _read(Path(chosen).expanduser() if chosen else folder / "key", bool(chosen))


@lru_cache(maxsize=8)
def _read(path: Path, chosen: bool) -> Key:
    try:
        if not chosen and not path.exists():
            _make(path)
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"Can't use the audit key {str(path)!r}: {error.strerror}. Expected an ed25519 private key (PEM or "
            f"OpenSSH), readable by you; name another with {VARIABLE}."
        ) from error
    mac = hashlib.sha256(b"interlock audit\0" + data).digest()
    return Key(path, hashlib.sha256(mac).hexdigest()[:8], mac)


def _make(path: Path) -> None:
    private_directory(path.parent)
    text = base64.b64encode(_PKCS8 + secrets.token_bytes(32)).decode()
    made = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, CLOSED_FILE), "w") as file:
        file.write(f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
        file.flush()
        os.fsync(file.fileno())
    made.rename(path)


def _private(key: Key) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    data = key.path.read_bytes()
    load = load_ssh_private_key if b"OPENSSH" in data else load_pem_private_key
    try:
        found = load(data, None)
    except (ValueError, TypeError) as error:
        raise StoreError(f"Can't read the audit key {str(key.path)!r}: {error}.") from error
    if not isinstance(found, Ed25519PrivateKey):
        raise StoreError(f"The audit key {str(key.path)!r} isn't an ed25519 key.")
    return found


def sign(key: Key, text: bytes) -> tuple[str, str]:
    """Public key and signature, both base64."""
    private = _private(key)
    public = private.public_key().public_bytes_raw()
    return base64.b64encode(public).decode(), base64.b64encode(private.sign(text)).decode()


def is_signed(public: str, signature: str, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(public)).verify(base64.b64decode(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True
