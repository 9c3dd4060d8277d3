"""Writing the page of a comparison. The same context gives the same bytes."""

from __future__ import annotations

import os
from pathlib import Path

from fa_registry.reporting.compare_parts import CompareContext
from fa_registry.reporting.contexts import variables
from fa_registry.reporting.environment import Pages
from fa_registry.reporting.unfinished import unfinished
from fa_registry.reporting.user_templates import check_templates

PAGE = "compare.html"


def render_comparison(context: CompareContext, out: Path, templates: Path | None = None) -> Path:
    """Write compare.html into `out`. templates: see render.render_report. UsageError for a template that fails."""
    check_templates(templates)
    text = Pages(templates).render(f"{PAGE}.j2", variables(context))
    with unfinished(out) as folder:
        path = folder / PAGE
        path.write_bytes(text.encode("utf-8", errors="backslashreplace"))  # a lone surrogate: as render.py does
        os.replace(path, out / PAGE)
    return out / PAGE
