"""One seed, independent streams."""

from __future__ import annotations

import hashlib

import pytest
import torch

from fa_registry.seeding import STREAMS, derive, generator


def test_streams_of_one_seed_and_of_two_seeds_all_differ():
    derived = [derive(seed, stream) for seed in range(50) for stream in STREAMS]
    assert len(set(derived)) == len(derived)


def test_derived_seeds_never_change_between_releases():
    expected = int.from_bytes(hashlib.sha256(b"fa_registry/42/init").digest()[:8], "big") >> 1
    assert derive(42, "init") == expected == 4279524661655790858
    assert 0 <= derive(42, "feedback") < 2**63


def test_the_same_stream_draws_the_same_numbers():
    first, second, other = (torch.rand(8, generator=generator(42, stream)) for stream in ("init", "init", "feedback"))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    torch.rand(3, generator=generator(1, "init"))
    assert torch.equal(before, torch.get_rng_state())


def test_an_unknown_stream_is_refused():
    with pytest.raises(ValueError, match="unknown stream 'inti'; known: init, feedback"):
        generator(1, "inti")
