"""Public functions for models that were not trained with this package.

FAProtocol and `diagnose` have the same interface as in the published code. `alignment` measures Γ of a credit rule.
"""

from fa_registry.published_api.alignment import Alignment, alignment
from fa_registry.published_api.diagnosis import DiagnosisReport, diagnose
from fa_registry.published_api.fa_protocol import FAProtocol

__all__ = ["Alignment", "DiagnosisReport", "FAProtocol", "alignment", "diagnose"]
