"""Keys of the claims: the kind, rank and topic of each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fa_registry.metrics import symbol_of
from fa_registry.records import RunAudit
from fa_registry.reporting.view_models import Claim

# Key of every claim → its kind, in the order of a form: claims that invalidate the other claims; the pass; claims about Γ, which
# readers look for first; claims about depth, scale and reference; other restrictions; and notes on how to read a metric.
KEYS: Mapping[str, str] = MappingProxyType(
    {
        "differs from its seal": "open",
        "method fails": "not",
        "other code": "open",
        "diverged": "not",
        "failed": "open",
        "incomplete": "open",
        "near backpropagation": "not",
        "answers looked up": "not",
        "own task": "not",
        "test in train": "not",
        "not sealed": "open",
        "adopted": "open",
        "superseded": "open",
        "trained depth": "may",
        "trained part": "may",
        "passes without depth": "open",
        "aligned by feedback": "may",
        "aligned, null unknown": "may",
        "specific": "may",
        "not aligned": "not",
        "not specific": "not",
        "too small": "not",
        "null unknown": "open",
        "no evidence": "open",
        "no gamma": "open",
        "carried by one end": "not",
        "undercut": "not",
        "at chance": "not",
        "stated": "open",
        "last block": "open",
        "undecided": "open",
        "provisional": "open",
        "beats frozen": "may",
        "exploded": "not",
        "at floor": "not",
        "noisy": "not",
        "stability high": "not",
        "other fails": "not",
        "other warns": "open",
        "method not measured": "open",
        "waived": "open",
        "not judged": "open",
        "one seed": "open",
        "within limit": "note",
        "passes alone": "note",
        "converged": "note",
        "explained": "note",
        "gamma not applicable": "note",
        "keeps scale": "note",
        "reference clear": "note",
        "reference near its floor": "note",
        "stability low": "note",
        "other passes": "note",
    }
)
WEIGHT: Mapping[str, int] = MappingProxyType({key: place for place, key in enumerate(KEYS)})
# Topic → keys of the claims that a form labels with this topic.
TOPICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Depth": (
            *("trained depth", "trained part", "passes without depth", "undercut", "at chance", "stated", "last block"),
            *("undecided", "provisional", "beats frozen", "within limit"),
        ),
        "Scale": ("exploded", "explained", "keeps scale"),
        "Reference": (
            *("at floor", "noisy", "converged", "reference clear", "reference near its floor"),
            *("stability high", "stability low"),
        ),
        symbol_of("gamma"): (
            *("aligned by feedback", "aligned, null unknown", "specific", "not aligned", "not specific", "too small"),
            *("null unknown", "no evidence", "no gamma", "gamma not applicable", "carried by one end"),
        ),
    }
)


def claim(key: str, text: str, touched: Sequence[RunAudit]) -> Claim:
    """Return one claim about the runs `touched`; `text` is a sentence without its final full stop."""
    topic = next((topic for topic, keys in TOPICS.items() if key in keys), "")
    return Claim(KEYS[key], f"{text}.", tuple(run.record.run_id for run in touched), key, topic)
