"""Entry points for models outside the registry: FAProtocol, diagnose (both published) and alignment.

`alignment` measures Γ of a user-supplied credit rule.
"""

from fa_registry.published_api.alignment import Alignment, alignment
from fa_registry.published_api.diagnosis import DiagnosisReport, diagnose
from fa_registry.published_api.fa_protocol import FAProtocol

__all__ = ["Alignment", "DiagnosisReport", "FAProtocol", "alignment", "diagnose"]
