"""The note of a study's own run in MLflow."""

from __future__ import annotations

from fa_registry.reporting.filters import markdown_text
from fa_registry.studies.study import Study


def study_note(study: Study) -> str:
    """What the study asks and of which runs, in Markdown. An audit writes what it found above this."""
    labels = dict.fromkeys(spec.label for spec in study.specs)
    seeds = sorted({spec.seed for spec in study.specs})
    sizes = [counted(len(study.specs), "run"), counted(len(study.settings), "setting"), counted(len(seeds), "seed")]
    asked = [
        f"**{markdown_text(study.title)}**",
        f"{', '.join(sizes)} ({', '.join(map(str, seeds))}); edition {markdown_text(study.edition)}",
        f"Methods and controls: {', '.join(markdown_text(label) for label in labels)}",
    ]
    if study.cost:
        asked.append(f"Cost: {markdown_text(study.cost)}")
    return "\n\n".join(asked)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
