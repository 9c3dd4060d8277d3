"""Analyses of many judged runs, one module per analysis.

An analysis reads recorded metrics and measures no network.
"""

from fa_registry.analyses.base import Analyser, Analysis, AnalysisCell, AnalysisColumn, AnalysisTable
from fa_registry.plugin_registry import Catalog

__all__ = ["CATALOG", "Analyser", "Analysis", "AnalysisCell", "AnalysisColumn", "AnalysisTable"]

CATALOG = Catalog("analyses", "analysis", Analyser)
