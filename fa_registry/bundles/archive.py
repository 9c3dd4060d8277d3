"""File format of a bundle: a zip archive whose bytes depend only on its files, and its signature.

Any change of the archive can therefore be detected. `unpack` does not trust the archive. First, `unpack` checks names, counts
and sizes. Then `unpack` extracts the files, packs the extracted files again and compares the bytes of the two archives.

The Ed25519 signature covers the manifest, which contains the SHA-256 of every file. A valid signature proves that the owner of the
private key signed the manifest. The reader must learn from another source who owns the key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fa_registry import jsonio, process_ownership
from fa_registry.errors import IntegrityError, InvalidFields, UsageError, join_names, shortened
from fa_registry.field_types import Limits
from fa_registry.safe_files import RECORD, UnreadableFile, open_zip, read_file, resolve_user_path
from fa_registry.schema_number import KEY, SCHEMA, check_schema

MANIFEST, SIGNATURE, CRATE = "manifest.json", "manifest.sig", "ro-crate-metadata.json"
FORMAT = "fa_registry bundle"
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can store
MOST_FILES = 200_000
MANIFEST_COMMENT = re.compile(rb"manifest sha256 ([0-9a-f]{64})")
PART = re.compile(r"[\w.+@ =,~-]+")  # a part of a path, with characters that every operating system accepts
Digest = Annotated[str, Limits("a SHA-256 as 64 hexadecimal digits", pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Manifest:
    """Description of a bundle.

    Attributes:
        audit: run id of the audit.
        light: whether the bundle lacks the files with tensors.
        made_by: version of fa_registry that created the bundle.
        files: mapping file name → SHA-256.
        sizes: mapping file name → size in bytes.
    """

    format: Literal[FORMAT]
    schema: int
    study: str
    audit: str
    light: bool
    made_by: str
    files: Mapping[str, Digest]
    sizes: Mapping[str, Annotated[int, Limits(ge=0)]]


def pack(
    folder: Path, out: Path, manifest_fields: Mapping[str, Any], sign: Callable[[bytes], bytes] | None = None
) -> None:
    """Pack all files below `folder` into one zip archive.

    Equal files, manifest fields and signatures give equal bytes. An existing bundle at `out` is replaced only when the new
    bundle is complete.

    Args:
        out: path of the bundle, as returned by `checked_target`.
        manifest_fields: fields of the manifest except format, version, files and sizes.
        sign: function that returns the signature of the manifest's bytes; see signing.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files = {name: jsonio.file_digest(folder / name) for name in names}
    sizes = {name: (folder / name).stat().st_size for name in names}
    manifest = Manifest(FORMAT, SCHEMA, files=files, sizes=sizes, **manifest_fields)
    temporary = _temporary(out)
    try:
        data = manifest_bytes(manifest)
        _write(folder, names, data, sign(data) if sign else b"", temporary)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def checked_target(out: Path) -> Path:
    """Return the path at which a bundle is written: `out`, or the target of the link `out`.

    Raises:
        UsageError: the folder of `out` is missing or cannot be written to, or `out` exists and is not a bundle.
    """
    target = resolve_user_path(out)
    try:
        if target.is_dir():
            raise UsageError(f"out: expected the path of a file, found the folder {out}; add a file name")
        if not target.parent.is_dir():
            raise UsageError(f"out: {out.parent} is not a folder; create the folder, or name a file in another folder")
        if os.path.lexists(target) and not _is_bundle(target):
            raise UsageError(f"out: {out} exists and is not a bundle, so it is not replaced; name another file")
        temporary = _temporary(target)
        temporary.touch()
        temporary.unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"out: {out} cannot be written: {reason}; name another file") from error
    return target


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}{process_ownership.owner_suffix()}")


def _is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle. A bundle with changed content counts too."""
    try:
        with open_zip(path) as archive:
            return MANIFEST in archive.namelist() and MANIFEST_COMMENT.fullmatch(archive.comment) is not None
    except (zipfile.BadZipFile, UnreadableFile, EOFError, NotImplementedError, OverflowError, ValueError):
        return False


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the bytes of the manifest as they are stored in the archive and signed."""
    return jsonio.pretty(manifest).encode()


def unpack(path: Path, folder: Path) -> tuple[Manifest, bytes]:
    """Check a bundle, unpack it below `folder`, and return its manifest and signature ("" if unsigned).

    Raises:
        IntegrityError: `path` is not a bundle, or was changed after packing. Do not use the unpacked files in this case.
    """
    path = resolve_user_path(path)
    try:
        with open_zip(path) as archive:
            manifest, signature = _opened(archive, path)
            changed_files = [name for name in manifest.files if not _extracted(archive, name, manifest, folder)]
    except (zipfile.BadZipFile, UnreadableFile, EOFError, NotImplementedError, OverflowError, ValueError) as error:
        raise IntegrityError(f"{path.name} is not a readable bundle: {shortened(error)}") from error
    if changed_files:
        raise IntegrityError(
            f"{path.name}: these files of the bundle were changed after packing: {join_names(changed_files)}"
        )
    _check_again(path, folder, manifest, signature)
    return manifest, signature


def _opened(archive: zipfile.ZipFile, path: Path) -> tuple[Manifest, bytes]:
    """Check the list of files; return manifest and signature."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(entries) > MOST_FILES:
        raise IntegrityError(f"{path.name} has {len(entries):,} files; a bundle has at most {MOST_FILES:,}")
    problems = [
        f"{shortened(name)!r} occurs {count} times, expected once"
        for name, count in Counter(map(str.casefold, names)).items()
        if count > 1
    ]
    problems += [f"{shortened(entry.filename)!r} {problem}" for entry in entries if (problem := _unfit(entry))]
    if problems:
        raise IntegrityError(f"{path.name}: {'; '.join(problems[:5])}")
    if MANIFEST not in names:
        raise IntegrityError(f"{path.name} has no {MANIFEST}, so it is not a bundle of fa_registry")
    manifest_data = _bounded(archive, path, MANIFEST)
    comment = MANIFEST_COMMENT.fullmatch(archive.comment)
    if comment is None or comment[1].decode() != hashlib.sha256(manifest_data).hexdigest():
        raise IntegrityError(f"{path.name}: {MANIFEST} was changed after packing")
    manifest = _manifest(manifest_data, path)
    extra_files = sorted(set(names) - set(manifest.files) - {MANIFEST, SIGNATURE})
    missing_files = sorted(set(manifest.files) - set(names))
    if extra_files or missing_files or manifest.sizes.keys() != manifest.files.keys():
        raise IntegrityError(
            f"{path.name}: files missing in its manifest: {join_names(extra_files) or 'none'}; files missing in the bundle: "
            f"{join_names(missing_files) or 'none'}"
        )
    return manifest, _bounded(archive, path, SIGNATURE) if SIGNATURE in names else b""


def _manifest(data: bytes, path: Path) -> Manifest:
    raw = jsonio.loads(data.decode())
    if isinstance(raw, Mapping) and raw.get("format") == FORMAT:
        advice = "ask the sender for a bundle that this fa_registry wrote, or install the sender's fa_registry"
        check_schema(path.name, raw.get(KEY), advice)
    try:
        return jsonio.decode(Manifest, raw, MANIFEST)
    except InvalidFields as error:
        raise IntegrityError(f"{path.name}: {error}") from error


def _unfit(entry: zipfile.ZipInfo) -> str:
    name = entry.filename
    parts = PurePosixPath(name).parts
    if name.startswith("/") or "\\" in name or ".." in parts or not parts or name != "/".join(parts):
        return "is a file with a path outside the bundle"
    if entry.is_dir() or entry.external_attr >> 28 not in (0, 0o10):
        return "is not a regular file"
    if entry.flag_bits & 1:
        return "is encrypted"
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        return "is a compressed file, but a bundle contains only uncompressed files"
    return "" if all(map(PART.fullmatch, parts)) else "is a file name that some operating systems do not accept"


def _extracted(archive: zipfile.ZipFile, name: str, manifest: Manifest, folder: Path) -> bool:
    """Extract a file of the declared size; return whether its digest is correct."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    remaining_bytes, digest = manifest.sizes[name], hashlib.sha256()
    try:
        with archive.open(name) as reader, target.open("xb") as writer:
            while chunk := reader.read(min(remaining_bytes + 1, 2**20)):
                remaining_bytes -= len(chunk)
                if remaining_bytes < 0:
                    return False
                digest.update(chunk)
                writer.write(chunk)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError):
        return False
    return remaining_bytes == 0 and digest.hexdigest() == manifest.files[name]


def _bounded(archive: zipfile.ZipFile, path: Path, name: str) -> bytes:
    try:
        with archive.open(name) as stream:
            data = stream.read(RECORD + 1)
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise IntegrityError(f"{path.name}: {name} was changed after packing: {error}") from error
    if len(data) > RECORD:
        raise IntegrityError(f"{path.name}: {name} has more than {RECORD:,} bytes")
    return data


def _check_again(path: Path, folder: Path, manifest: Manifest, signature: bytes) -> None:
    """Pack the files again and raise IntegrityError if the bytes differ."""
    # this detects changes that no digest covers: times, attributes, gaps between files
    with process_ownership.temp_dir("fa_registry-bundle-") as temp_folder:
        repacked = temp_folder / "again.zip"
        _write(folder, sorted(manifest.files), manifest_bytes(manifest), signature, repacked)
        byte_index = _first_difference(path, repacked)
        if byte_index is None:
            return
        with zipfile.ZipFile(repacked) as archive:
            offsets = sorted((entry.header_offset, entry.filename) for entry in archive.infolist())
    name = next((name for offset, name in reversed(offsets) if offset <= byte_index), MANIFEST)
    raise IntegrityError(
        f"{path.name}: byte {byte_index:,} was changed after packing, in or directly after the file {name}"
    )


def _first_difference(left: Path, right: Path) -> int | None:
    offset = 0
    with left.open("rb") as left_stream, right.open("rb") as right_stream:
        while True:
            first, second = left_stream.read(2**20), right_stream.read(2**20)
            if first != second:
                differing = (index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
                return offset + next(differing, min(len(first), len(second)))
            if not first:
                return None
            offset += len(first)


def _write(folder: Path, names: list[str], manifest: bytes, signature: bytes, out: Path) -> None:
    special_files = {MANIFEST: manifest, **({SIGNATURE: signature} if signature else {})}
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in special_files.items():
            archive.writestr(_entry(name), data)
        for name in names:
            archive.writestr(_entry(name), (folder / name).read_bytes())
        archive.comment = f"manifest sha256 {hashlib.sha256(manifest).hexdigest()}".encode()


def _entry(name: str) -> zipfile.ZipInfo:
    # zlib versions may compress the same bytes differently, and compression hardly shrinks tensors
    entry = zipfile.ZipInfo(name, TIME)
    entry.create_system, entry.external_attr, entry.compress_type = 3, 0o100644 << 16, zipfile.ZIP_STORED
    return entry


RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw
MAKE = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub"


def signed(manifest: bytes, key: Path) -> bytes:
    """Sign a manifest with a PEM file with an unencrypted private key; return key and signature as JSON."""
    private = _key(key, serialization.load_pem_private_key, Ed25519PrivateKey, "private", None)
    signature_fields = {"public_key": private.public_key().public_bytes(*RAW), "signature": private.sign(manifest)}
    return jsonio.pretty({name: base64.b64encode(value).decode() for name, value in signature_fields.items()}).encode()


def signer(manifest: Manifest, signature: bytes, key: str) -> str:
    """Check the signature of a manifest and return a text that describes the signer.

    Args:
        signature: result of `signed`, or empty bytes if the bundle is not signed.
        key: PEM file with the expected public key; None accepts any key.

    Raises:
        IntegrityError: the signature is invalid, was made with another key, or is missing although `key` is given.
    """
    expected_key = _key(Path(key), serialization.load_pem_public_key, Ed25519PublicKey, "public") if key else None
    if not signature:
        if expected_key:
            raise IntegrityError("expected a signature by the given key, but the bundle is not signed")
        return "not signed"
    try:
        signature_fields = json.loads(signature)
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature_fields["public_key"], validate=True))
        public.verify(base64.b64decode(signature_fields["signature"], validate=True), manifest_bytes(manifest))
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
