"""Who made a bundle: an Ed25519 signature over its manifest, which names every file by its SHA-256.

A signature says that whoever holds the private key made these bytes. Whose key it is, the reader has to know from elsewhere.
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
    """The signature's file: public key and signature, as JSON. key: a PEM file with a private Ed25519 key, without a password."""
    private = _key(key, serialization.load_pem_private_key, Ed25519PrivateKey, "private", None)
    reported = {"public_key": private.public_key().public_bytes(*RAW), "signature": private.sign(manifest)}
    return jsonio.pretty({name: base64.b64encode(value).decode() for name, value in reported.items()}).encode()


def signer(manifest: bytes, signature: bytes, key: Path | None) -> str:
    """In words who signed; IntegrityError where it is not of these bytes, or not by `key`, a PEM file of a public key."""
    wanted = _key(key, serialization.load_pem_public_key, Ed25519PublicKey, "public") if key else None
    if not signature:
        if wanted:
            raise IntegrityError("the bundle is not signed, and a signature was asked for")
        return "nobody signed it"
    try:
        reported = json.loads(signature)
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(reported["public_key"], validate=True))
        public.verify(base64.b64decode(reported["signature"], validate=True), manifest)
    except (InvalidSignature, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(
            "the signature is not of this bundle: it, or the manifest, was changed after it was made"
        ) from error
    print_of = fingerprint(public)
    if wanted is None:
        return f"signed by the key {print_of}, which nobody here vouches for (--key PUBLIC)"
    if wanted.public_bytes(*RAW) != public.public_bytes(*RAW):
        raise IntegrityError(
            f"the bundle is signed by the key {print_of}, and not by {fingerprint(wanted)}, as was asked for"
        )
    return f"signed by the key {print_of}, as was asked for"


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 over the 32 bytes of the key, the first 16 digits."""
    return hashlib.sha256(key.public_bytes(*RAW)).hexdigest()[:16]


def _key(path: Path, load, kind: type, word: str, *more):
    try:
        key = load(read_file(resolve_user_path(path), 2**16), *more)
    except UnreadableFile as error:
        raise UsageError(f"key {path}: {error.reason}; `{MAKE}` makes a pair") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"key {path}: no {word} Ed25519 key in PEM form without a password: {error}; `{MAKE}` makes a pair"
        ) from error
    if not isinstance(key, kind):
        raise UsageError(
            f"key {path}: expected a {word} Ed25519 key, found {type(key).__name__}; `{MAKE}` makes a pair"
        )
    return key
