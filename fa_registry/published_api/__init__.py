"""Entry points for models outside the registry: the published FAProtocol and diagnose, and alignment."""

from fa_registry.published_api.alignment import Alignment, alignment
from fa_registry.published_api.diagnosis import DiagnosisReport, diagnose
from fa_registry.published_api.fa_protocol import FAProtocol

__all__ = ["Alignment", "DiagnosisReport", "FAProtocol", "alignment", "diagnose"]
