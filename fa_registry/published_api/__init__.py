"""For models that no registry knows: the published code's entry points FAProtocol and diagnose, and Γ of a rule of one's own."""

from fa_registry.published_api.alignment import Alignment, alignment
from fa_registry.published_api.diagnosis import DiagnosisReport, diagnose
from fa_registry.published_api.fa_protocol import FAProtocol

__all__ = ["Alignment", "DiagnosisReport", "FAProtocol", "alignment", "diagnose"]
