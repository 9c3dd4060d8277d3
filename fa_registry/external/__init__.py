"""Public functions for models that were not trained with this package.

FAProtocol and `diagnose` have the same interface as in the published code (arXiv 2606.21126 and the release before it).
`alignment` measures Γ, the cosine of credit and gradient, for a user-supplied credit rule.
"""

from fa_registry.external.alignment import Alignment, alignment
from fa_registry.external.diagnosis import DiagnosisReport, diagnose
from fa_registry.external.fa_protocol import FAProtocol

__all__ = ["Alignment", "DiagnosisReport", "FAProtocol", "alignment", "diagnose"]
