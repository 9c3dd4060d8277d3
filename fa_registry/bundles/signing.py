"""Ed25519 signatures of bundles.

The signature covers the manifest, which contains the SHA-256 of every file. A valid signature proves that the owner of the private
key signed the manifest. The reader must learn from another source who owns the key.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, UsageError
from fa_registry.safe_files import UnreadableFile, read_file, resolve_user_path

RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw
MAKE = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub"


def signed(manifest: bytes, key: Path) -> bytes:
    """Sign a manifest with a PEM file with an unencrypted private key; return key and signature as JSON."""
    private = _key(key, serialization.load_pem_private_key, Ed25519PrivateKey, "private", None)
    signature_fields = {"public_key": private.public_key().public_bytes(*RAW), "signature": private.sign(manifest)}
    return jsonio.pretty({name: base64.b64encode(value).decode() for name, value in signature_fields.items()}).encode()


def signer(manifest: bytes, signature: bytes, key: Path | None) -> str:
    """Check the signature of a manifest and return a text that describes the signer.

    The signature is that of `signed`, or empty. The PEM file `key` contains the expected public key; None accepts any key. The
    function raises IntegrityError if the signature is invalid, was made with another key, or is missing although `key` is
    given.
    """
    expected_key = _key(key, serialization.load_pem_public_key, Ed25519PublicKey, "public") if key else None
    if not signature:
        if expected_key:
            raise IntegrityError("expected a signature by the given key, but the bundle is not signed")
        return "not signed"
    try:
        signature_fields = json.loads(signature)
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature_fields["public_key"], validate=True))
        public.verify(base64.b64decode(signature_fields["signature"], validate=True), manifest)
    except (InvalidSignature, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(
            "the signature does not match the bundle: the signature or the manifest was changed"
        ) from error
    key_fingerprint = fingerprint(public)
    if expected_key is None:
        return f"signed by the key {key_fingerprint}, but the key was not checked; use --key PUBLIC to check the key"
    if expected_key.public_bytes(*RAW) != public.public_bytes(*RAW):
        raise IntegrityError(
            f"the bundle is signed by the key {key_fingerprint}, expected the key {fingerprint(expected_key)}"
        )
    return f"signed by the key {key_fingerprint}, which is the expected key"


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a public key."""
    return hashlib.sha256(key.public_bytes(*RAW)).hexdigest()[:16]


def _key(path: Path, load, kind: type, role: str, *extra_arguments):
    try:
        key = load(read_file(resolve_user_path(path), 2**16), *extra_arguments)
    except UnreadableFile as error:
        raise UsageError(f"key {path}: {error.reason}; create a key pair with `{MAKE}`") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"key {path}: expected a {role} Ed25519 key in PEM format without a password: {error}; create a key pair with `{MAKE}`"
        ) from error
    if not isinstance(key, kind):
        raise UsageError(
            f"key {path}: expected a {role} Ed25519 key, found {type(key).__name__}; create a key pair with `{MAKE}`"
        )
    return key
