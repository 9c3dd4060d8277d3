"""Diagnostic gamma_null: Γ for newly drawn feedback that was not used in training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fa_registry.diagnostics._probe import absence
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, sample_norms
from fa_registry.diagnostics.gamma import NOT_CREDITED, defined, gamma_refusals, no_gamma
from fa_registry.diagnostics.gamma_block_input import FIRST_DEEP, deep_input
from fa_registry.records import Reading, not_finite
from fa_registry.statistics import rank_p_value

CHEAP_DRAWS = 99  # the smallest p is .01, clearly below the level of 5 % at which each site is tested
COSTLY_DRAWS = 20  # as published; the smallest p is 1/21 = .048: significant only if no draw reaches the observed Γ
AT_ONCE = 10  # number of draws whose cosines are computed together: few enough for the cache
NAMES = ("gamma_null_mean", "gamma_null_std", "gamma_null_p")
DEEP_NAMES = ("gamma_deep_input_null_mean", "gamma_deep_input_null_std")
EXACT = "the credit at this site is exact by construction, with any feedback"


class GammaNull(Diagnostic):
    card = DiagnosticCard(
        name="gamma_null",
        version=2,  # 99 draws where they are cheap
        symbol="Γ_l under fresh B",
        line=f"Γ_l for new draws of the feedback state ({CHEAP_DRAWS} draws, or {COSTLY_DRAWS} if a draw needs too many "
        f"operations; the number is recorded with the run): mean, standard deviation (ddof 1), and rank p-value "
        "(1 + draws with at least the observed Γ)/(draws + 1); gamma_deep_input_null: mean and standard deviation of the "
        "published deep cosine for the same draws",
        quantities=(*NAMES, *DEEP_NAMES),
        unit="cosine; _p: probability",
        range=f"−1 to 1; _p: {1 / (CHEAP_DRAWS + 1):.3f} to 1, or {1 / (COSTLY_DRAWS + 1):.3f} to 1 with {COSTLY_DRAWS} draws",
        cannot_tell="p-values below 1/(draws + 1); whether an alignment is useful (a small p-value only shows that training "
        "aligned the network with its feedback)",
        source="arXiv 2606.21126, fresh-B null; the p-value of Phipson & Smyth 2010",
        when="final",
        needs_credit=(*NAMES, *DEEP_NAMES),
        bibtex="""@article{phipson2010permutation,
  title={Permutation P-values Should Never Be Zero: Calculating Exact P-values When Permutations Are Randomly Drawn},
  author={Phipson, Belinda and Smyth, Gordon K.}, journal={Statistical Applications in Genetics and Molecular Biology},
  volume={9}, number={1}, pages={Article 39}, year={2010}
}""",
    )

    def measure(self, observation: Observation) -> Measured:
        """Compute mean and standard deviation (ddof 1) of Γ for newly drawn feedback.

        A third metric is the rank p-value of the run's Γ, (1 + number of draws with at least the observed Γ)/(draws + 1). These
        metrics are computed at every site. The scalar metrics are mean and standard deviation over the same draws of the mean
        over blocks 2..L of Γ with the gradient at the block's input. The trained network is not changed.
        """
        if reason := no_gamma(observation) or absence(observation, "fresh_credits"):
            scalars = dict.fromkeys(DEEP_NAMES, Reading(None, reason))
            return Measured({name: missing(observation.sites, reason) for name in NAMES}, scalars)
        refusals = gamma_refusals(observation)
        exact = observation.exact or (False,) * observation.sites
        refusals = [
            EXACT if exact[site] and refusal != NOT_CREDITED else refusal for site, refusal in enumerate(refusals)
        ]
        draws = observation.bench.null_draws
        parts = [range(start, min(start + AT_ONCE, draws)) for start in range(0, draws, AT_ONCE)]
        observed_deep = deep_input(observation)
        has_deep = observed_deep.value is not None
        tables = [_gammas(observation, part, has_deep) for part in parts]
        null, deep = map(np.concatenate, zip(*tables, strict=True))  # (draws, sites), (draws,)
        rows = [
            _readings(defined(observation.alignments[site]), null[:, site], refusal)
            for site, refusal in enumerate(refusals)
        ]
        scalars = dict(zip(DEEP_NAMES, _moments(deep, observed_deep.reason), strict=True))
        return Measured({name: tuple(row[index] for row in rows) for index, name in enumerate(NAMES)}, scalars)


def _gammas(observation: Observation, indices: range, has_deep: bool) -> tuple[np.ndarray, np.ndarray]:
    """Compute Γ of the draws in `indices`, (draws, sites), and the published deep cosine, (draws,).

    Γ is nan if no sample has a defined cosine. The deep cosine is nan if `has_deep` is false.
    """
    fresh_credits = [observation.bench.fresh_credits(index) for index in indices]
    columns, deep_columns = [], []
    for site in range(observation.sites):
        credits = torch.stack([credit[site] for credit in fresh_credits]).double()  # (draws, N, D)
        columns.append(_gamma_at(observation, credits, site))
        if has_deep and site >= FIRST_DEEP:
            deep_columns.append(_gamma_at(observation, credits, site - 1))
    deep = np.mean(deep_columns, axis=0) if has_deep else np.full(len(indices), np.nan)
    return np.stack(columns, axis=1), deep


def _gamma_at(observation: Observation, credits: Tensor, site: int) -> list[float]:
    """Compute the mean cosine of each draw's credits (draws, N, D) with the gradient at `site`."""
    norms = torch.as_tensor(observation.gradient_norms[site], device=credits.device)
    return _means(_cosines(credits, observation.gradients[site].double(), norms).cpu().numpy())


def _cosines(credits: Tensor, gradient: Tensor, norms: Tensor) -> Tensor:
    """Compute cosines (draws, N) between credits (draws, N, D) and gradients (N, D).

    `norms` contains ‖g‖ of every gradient, (N,). A cosine with a zero vector is nan, because the formula has no eps.
    """
    lengths = sample_norms(credits.flatten(0, 1)).unflatten(0, credits.shape[:2])
    return torch.linalg.vecdot(credits, gradient) / (lengths * norms)


def _means(cosines: np.ndarray) -> list[float]:
    """Return the mean of the defined cosines of each draw: (draws, N) → list with one value per draw."""
    rows = map(defined, cosines)
    return [float(row.mean()) if len(row) else float("nan") for row in rows]


def _readings(observed: np.ndarray, null: np.ndarray, refusal: str) -> tuple[Reading, Reading, Reading]:
    mean, deviation = _moments(null, refusal)
    if mean.value is None:
        return mean, deviation, mean
    return mean, deviation, Reading.of(rank_p_value(float(observed.mean()), null.tolist()))


def _moments(null: np.ndarray, refusal: str) -> tuple[Reading, Reading]:
    """Return mean and standard deviation (ddof 1) over the draws, or the reason twice."""
    if not refusal and not np.isfinite(null).all():
        refusal = not_finite("Γ under a fresh draw")
    if refusal:
        return (Reading(None, refusal),) * 2
    # the draws are a sample of all possible feedback, so ddof is 1; NumPy's default is 0 (tests/diagnostics/test_gamma.py)
    return Reading.of(null.mean()), Reading.of(null.std(ddof=1))


PLUGIN = GammaNull()
