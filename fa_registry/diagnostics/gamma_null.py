"""The null of Γ: the same network under feedback it was not trained with."""

from __future__ import annotations

import numpy as np

from fa_registry.diagnostics._bench import absence
from fa_registry.diagnostics._gamma import defined, gamma_refusals, no_gamma
from fa_registry.diagnostics._observe import gradient_vectors
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured, Observation, missing, sample_cosines
from fa_registry.records import NOT_FINITE, Reading
from fa_registry.statistics import rank_p_value

DRAWS = 20
NAMES = ("gamma_null_mean", "gamma_null_std", "gamma_null_p")
EXACT = "the credit is exact by construction here, whatever the feedback"


class GammaNull(Diagnostic):
    card = DiagnosticCard(
        name="gamma_null",
        symbol="Γ_l under fresh B",
        line=f"Γ_l under {DRAWS} fresh draws of the feedback state: mean, standard deviation (ddof 1), and the rank p-value "
        "(1 + draws with at least the observed Γ)/(draws + 1)",
        quantities=NAMES,
        unit="cosine; _p: probability",
        range=f"−1 to 1; _p: {1 / (DRAWS + 1):.3f} to 1",
        cannot_tell=f"p-values below {1 / (DRAWS + 1):.3f}; nor whether an alignment is useful, only that it is with this feedback",
        source="arXiv 2606.21126, fresh-B null; the p-value of Phipson & Smyth 2010",
        when="final",
        needs_credit=NAMES,
        conventions={"gamma_null_draws": DRAWS},
        bibtex="""@article{phipson2010permutation,
  title={Permutation P-values Should Never Be Zero: Calculating Exact P-values When Permutations Are Randomly Drawn},
  author={Phipson, Belinda and Smyth, Gordon K.}, journal={Statistical Applications in Genetics and Molecular Biology},
  volume={9}, number={1}, pages={Article 39}, year={2010}
}""",
    )

    def measure(self, observation: Observation) -> Measured:
        if absent := no_gamma(observation) or absence(observation, "fresh_credits"):
            return Measured(sites={name: missing(observation.sites, absent) for name in NAMES})
        refusals = gamma_refusals(observation)
        exact = observation.exact or (False,) * observation.sites
        null = np.array([_gammas(observation, index) for index in range(DRAWS)])  # (draws, sites)
        rows = [
            _readings(defined(observation.alignments[site]), null[:, site], EXACT if exact[site] else refusals[site])
            for site in range(observation.sites)
        ]
        return Measured(sites={name: tuple(row[place] for row in rows) for place, name in enumerate(NAMES)})


def _gammas(observation: Observation, index: int) -> list[float]:
    """Γ of every site under one fresh draw; nan where no sample has a cosine."""
    credits = observation.bench.fresh_credits(index)
    cosines = [
        defined(sample_cosines(gradient_vectors(credit), gradient).cpu().numpy())
        for credit, gradient in zip(credits, observation.gradients, strict=True)
    ]
    return [float(row.mean()) if len(row) else float("nan") for row in cosines]


def _readings(observed: np.ndarray, null: np.ndarray, refusal: str) -> tuple[Reading, Reading, Reading]:
    if not refusal and not np.isfinite(null).all():
        refusal = f"{NOT_FINITE}: Γ under a fresh draw"
    if refusal:
        return (Reading(None, refusal),) * 3
    return (
        Reading.of(null.mean()),
        Reading.of(null.std(ddof=1)),
        Reading.of(rank_p_value(float(observed.mean()), null.tolist())),
    )


PLUGIN = GammaNull()
