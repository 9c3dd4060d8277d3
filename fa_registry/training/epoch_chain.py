"""Chained digests of a training's state, one an epoch, which an audit compares while it replays a run.

chain[e] = SHA-256(chain[e−1] + digest of the state after epoch e), with the empty string before chain[0], the initialisation.
The state is network, feedback and optimiser. Its digest is a SHA-256 over each tensor's name, type, shape and 128-bit GMAC
under a public key. GMAC reads 20 GB/s and SHA-256 1.8 GB/s, which would be 2.5 % of the training of digits. The digest finds
any change that is not made on purpose. A reader of this file can construct two states with one digest. That does not help a
dishonest author: an audit compares the recorded digests with those of states that it computes itself, and an author can
record the correct digests with any weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from torch import Tensor

GMAC = AESGCM(bytes(32))
NONCE = bytes(12)
PIECE = 2**30  # bytes of one GMAC; OpenSSL takes less than 2^31
OLDER_FILE = "the run was resumed from the resume file of a release that chained no digests"


class EpochChain:
    """The chained digests of one training.

    Attributes:
        digests: hexadecimal, one an epoch from epoch 0; None where some epochs are unknown.
    """

    def __init__(self, initial: Mapping[str, Tensor]):
        """Start the chain with the state at initialisation, name → tensor."""
        self.digests: list[str] | None = []
        self._staged: dict[str, Tensor] = {}
        self._pinned: dict[str, Tensor] = {}
        self.stage(initial)
        if self._pinned:
            torch.cuda.current_stream().synchronize()
        self.extend()

    def stage(self, state: Mapping[str, Tensor]) -> None:
        """Copy the state that `extend` will digest; a GPU's copy is queued on the current stream, not awaited."""
        self._staged = {name: self._on_host(name, tensor) for name, tensor in state.items()}

    def extend(self) -> None:
        """Add the staged state's digest to the chain. The copies that `stage` began must have ended."""
        if self.digests is not None:
            self.digests.append(linked(self.digests, state_digest(self._staged)))
        self._staged = {}

    def _on_host(self, name: str, tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        if tensor.device.type != "cuda":
            return tensor
        if name not in self._pinned:
            self._pinned[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return self._pinned[name].copy_(tensor, non_blocking=True)


def linked(before: Sequence[str], digest: bytes) -> str:
    """Return the next link of a chain whose earlier links are `before`."""
    last = bytes.fromhex(before[-1]) if before else b""
    return hashlib.sha256(last + digest).hexdigest()


def state_digest(state: Mapping[str, Tensor]) -> bytes:
    """Return the digest of a state on the CPU: names, types, shapes and bytes, in the names' order."""
    parts = []
    for name in sorted(state):
        tensor = state[name]
        parts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        held = _bytes_of(tensor)
        if held.nbytes <= PIECE:
            parts.append(GMAC.encrypt(NONCE, b"", held))
        else:
            parts += [GMAC.encrypt(NONCE, b"", held[start : start + PIECE]) for start in range(0, held.nbytes, PIECE)]
    return hashlib.sha256(b"".join(parts)).digest()


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the tensor's bytes, without a copy if it is contiguous."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.numel():
        return memoryview(tensor.numpy()).cast("B")
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
