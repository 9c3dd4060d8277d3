"""Analyses over many judged runs, one file each. They look numbers up and count; they draw nothing and measure nothing."""

from fa_registry.analyses.base import Analyser, Analysis, AnalysisCell, AnalysisColumn, AnalysisTable
from fa_registry.plugin_registry import Catalog

__all__ = ["CATALOG", "Analyser", "Analysis", "AnalysisCell", "AnalysisColumn", "AnalysisTable"]

CATALOG = Catalog("analyses", "analysis", Analyser)
