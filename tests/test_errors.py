"""Messages and exit codes of the exception tree."""

from __future__ import annotations

import hashlib

import pytest
import torch

from fa_registry import errors, provenance
from fa_registry.errors import InvalidFields, RegistryError, unknown_name_text
from fa_registry.seeding import STREAMS, derive, generator
from fa_registry.token_axes import broadcast_over_positions, features, mean_over_positions, sum_over_positions


def test_unknown_name_suggests_the_nearest_and_lists_all():
    assert "(did you mean 'dfa'?)" in unknown_name_text("method", "dfaa", ["fa", "dfa", "bp"])


def test_unknown_name_without_a_near_one_makes_no_guess():
    assert "did you mean" not in unknown_name_text("method", "zzzz", ["dfa"])


def test_invalid_fields_reports_all_at_once():
    error = InvalidFields("run", ["seed: missing", "epochs: expected a whole number, found 'x'"])
    assert [one.split(":")[0] for one in error.problems] == ["seed", "epochs"]
    assert [line.strip("- ").split(":")[0] for line in str(error).splitlines()] == ["run", "seed", "epochs"]
    assert str(InvalidFields("run", ["seed: missing"])).startswith("run: 1 problem\n")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RegistryError", 1),
        ("UsageError", 2),
        ("UnknownName", 2),
        ("InvalidFields", 2),
        ("StoreError", 2),
        ("NothingSelected", 2),
        ("PluginError", 2),
        ("IntegrityError", 3),
        ("Interrupted", 130),
    ],
)
def test_exit_codes(name, code):
    assert getattr(errors, name).exit_code == code


def test_every_error_is_in_the_tree_drawn_at_the_top():
    members = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(member.__name__ in errors.__doc__ for member in members)
    assert {member for member in members if not issubclass(member, RegistryError)} == {errors.EvidenceWarning}


N, D = 3, 5
SHAPES = [(N, D), (N, 7, D), (N, D, 4, 2)]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_features_average_and_sum_have_one_row_a_sample(shape):
    state = draw(*shape)
    positions = state.numel() // (N * D)
    assert features(state) == D
    assert mean_over_positions(state).shape == sum_over_positions(state).shape == (N, D)
    torch.testing.assert_close(
        sum_over_positions(state), mean_over_positions(state) * positions, rtol=1e-12, atol=1e-12
    )


def test_tokens_and_maps_of_the_same_features_give_the_same_rows():
    maps = draw(N, D, 4, 2)
    tokens = maps.flatten(2).transpose(1, 2)
    torch.testing.assert_close(mean_over_positions(maps), mean_over_positions(tokens), rtol=1e-12, atol=1e-12)
    row = draw(N, D, seed=1)
    assert torch.equal(
        broadcast_over_positions(row, maps).flatten(2).transpose(1, 2), broadcast_over_positions(row, tokens)
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_spread_credit_has_the_inner_product_of_the_average(shape):
    """credit.md §2: <spread(c), h> = <c, averaged(h)>, sample by sample."""
    state, credit = draw(*shape), draw(N, D, seed=1)
    found = (broadcast_over_positions(credit, state) * state).flatten(1).sum(dim=1)
    torch.testing.assert_close(found, (credit * mean_over_positions(state)).sum(dim=1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_spread_is_the_same_everywhere_and_sums_to_the_credit(shape):
    state, credit = draw(*shape), draw(N, D, seed=1)
    spread = broadcast_over_positions(credit, state)
    assert spread.shape == state.shape
    torch.testing.assert_close(sum_over_positions(spread), credit, rtol=1e-12, atol=1e-12)
    everywhere = spread.flatten(2).movedim(1, -1) if len(shape) == 4 else spread.reshape(N, -1, D)
    assert torch.equal(everywhere, everywhere[:, :1].expand_as(everywhere))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_credit_with_positions_is_left_alone(shape):
    state, credit = draw(*shape), draw(*shape, seed=1)
    assert broadcast_over_positions(credit, state) is credit


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_of_a_gradient_is_the_slope_when_every_position_moves_alike(shape):
    state, weights = draw(*shape), draw(*shape, seed=1)

    def loss(moved: torch.Tensor) -> torch.Tensor:
        return (weights * moved.tanh()).sum()

    gradient = torch.autograd.grad(loss(state.requires_grad_()), state)[0]
    move = torch.zeros(N, D, dtype=torch.float64, requires_grad=True)
    lifted = move if len(shape) == 2 else move[:, None] if len(shape) == 3 else move[:, :, None, None]
    expected = torch.autograd.grad(loss(state.detach() + lifted), move)[0]
    torch.testing.assert_close(sum_over_positions(gradient), expected, rtol=1e-12, atol=1e-12)


def test_outside_a_checkout_nothing_is_recorded_about_the_tree(monkeypatch, tmp_path):
    provenance.commit.cache_clear()
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "fa_registry" / "provenance.py"))
    assert provenance.commit() == (provenance.NOT_A_CHECKOUT, None)
    provenance.commit.cache_clear()


def test_a_git_that_fails_is_unknown_not_clean(monkeypatch, tmp_path):
    provenance.commit.cache_clear()
    (tmp_path / ".git").mkdir()  # a folder of that name, and no repository in it
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "fa_registry" / "provenance.py"))
    commit, dirty = provenance.commit()
    assert commit.startswith("unknown: ") and dirty is None
    provenance.commit.cache_clear()


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


def test_the_commit_of_a_script_is_that_of_its_own_repository(tmp_path):
    """A script that git does not know is a change; other new files, such as a store, are none."""
    script = tmp_path / "train.py"
    script.write_text("pass")
    assert provenance.commit_of(script) == (provenance.NO_REPOSITORY, None)

    def git(*arguments):
        return provenance._git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments)

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    assert provenance.commit_of(script) == (git("rev-parse", "HEAD"), True)
    git("add", "train.py")
    git("commit", "-m", "second")
    (tmp_path / "mlflow.db").touch()
    assert provenance.commit_of(script) == (git("rev-parse", "HEAD"), False)
    script.write_text("0")
    assert provenance.commit_of(script) == (git("rev-parse", "HEAD"), True)
