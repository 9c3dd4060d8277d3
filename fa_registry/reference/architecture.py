"""Layers of the package for docs/architecture.md.

tests/test_layers.py checks that each module imports only from lower layers.
"""

from __future__ import annotations

import ast

from fa_registry.reference import CHECKOUT, filled, table

PACKAGE = CHECKOUT / "fa_registry"

# The layers, lowest first. A module imports only from lower layers; modules of the lowest layer may also import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "bundled_files",
        "errors",
        "field_types",
        "interrupts",
        "jsonio",
        "late_imports",
        "option_table",
        "output_streams",
        "parallel",
        "process_ownership",
        "records",
        "safe_files",
        "schema_number",
        "text_safety",
        "toml_lines",
    ),
    ("network_mode", "plugin_registry", "provenance", "seeding", "statistics", "token_axes"),
    ("metrics",),
    ("tasks",),
    ("architectures", "datasets", "diagnostics", "methods"),
    ("training",),
    ("conformance",),
    ("protocol", "tracking"),
    ("analyses",),
    ("reporting",),
    ("studies",),
    ("evidence",),
    ("audits", "external"),
    ("bundles",),
    ("inspection",),
    ("api",),
    ("cli",),
    ("reference",),
    ("__init__", "__main__"),
)


def architecture_reference() -> str:
    """Return docs/architecture.md with updated diagram and table."""
    return filled("docs/architecture.md", picture())


def picture() -> str:
    """Return a Mermaid flowchart of the layers and a Markdown table of the packages."""
    layers = [(index, sorted(layer)) for index, layer in enumerate(LAYERS) if "__init__" not in layer][::-1]
    boxes = [f'  layer{index}["{" · ".join(layer)}"]' for index, layer in layers]
    arrows = [f"  layer{above} --> layer{below}" for (above, _), (below, _) in zip(layers, layers[1:], strict=False)]
    purposes = ((f"`{name}`", _description(name)) for _, layer in layers for name in layer)
    return "\n".join(
        [
            "An arrow means *may import*; a layer may import from every layer below it:",
            "",
            "```mermaid",
            "flowchart TB",
            *boxes,
            *arrows,
            "```",
            "",
            table(("package or module", "purpose"), purposes),
        ]
    )


def _description(name: str) -> str:
    module = PACKAGE / f"{name}.py"
    source = (module if module.is_file() else PACKAGE / name / "__init__.py").read_text(encoding="utf-8")
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    return text.partition(". ")[0].rstrip(".")
