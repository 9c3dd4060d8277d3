"""Apply the edition's rules to every epoch of a run in training, and end the run if one fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fa_registry import diagnostics
from fa_registry.errors import unknown_name_text
from fa_registry.protocol.edition_schema import LIMIT
from fa_registry.protocol.rule_evaluation import fires_now
from fa_registry.protocol.rules import Edition, Rule
from fa_registry.tracking import schema
from fa_registry.training.loop import EpochRow
from fa_registry.workflows.editions import DEFAULT_EDITION, load_or_name, signature


@dataclass(frozen=True)
class MonitoredRules:
    """The edition whose rules are checked (None: no rules), and which of them end the run."""

    edition: Edition | None = None
    stop_on: tuple[str, ...] = ()

    @property
    def by(self) -> str:
        """Return the edition's description for a tag."""
        return signature(self.edition.reference) if self.edition else ""

    @property
    def wish(self) -> str:
        """Return which rules may end the run; equal values end equal runs at the same epoch. Empty: none."""
        return f"{','.join(self.stop_on)} by {self.by}" if self.stop_on else ""

    def of(self, control: str) -> MonitoredRules:
        """Return the rules for one run; no rule ends a control, because it is never judged and others need it."""
        return self if control == "none" else MonitoredRules(self.edition)


UNWATCHED = MonitoredRules()


def checked_watch(edition: str, stop_on: str, problems: list[str]) -> MonitoredRules:
    """Return the requested rules; errors are added to `problems`.

    Args:
        edition: a name or path.
        stop_on: `D1,D2`.
    """
    loaded = load_or_name(edition or DEFAULT_EDITION, problems)
    if loaded is None:
        return UNWATCHED
    rules = {rule.code: rule for rule in loaded.rules}
    codes = tuple(sorted({code.strip() for code in stop_on.split(",") if code.strip()}))
    for code in codes:
        if code not in rules:
            problems.append(f"stop_on: {unknown_name_text(f'rule of edition {loaded.name}', code, rules)}")
        elif not is_watchable(rules[code]):
            can = ", ".join(rule.code for rule in loaded.rules if is_watchable(rule)) or "none of this edition"
            problems.append(
                f"stop_on: {code} cannot be judged while a run trains: it needs a control, other seeds or metrics that "
                f"are measured at the end; expected of edition {loaded.name}: {can}"
            )
    return MonitoredRules(loaded, codes)


def is_watchable(rule: Rule) -> bool:
    """Return whether a rule can be judged from one run's metrics at one epoch."""
    cards = [diagnostic.card for diagnostic in diagnostics.CATALOG.members().values()]
    late = [card for card in cards if card.when == "final"]
    at_the_end = any(card.covers(condition.quantity) for card in late for condition in rule.conditions)
    return rule.judge == LIMIT and not rule.reference and not at_the_end


class Monitor:
    """Checks the rules at every epoch of one run.

    Args:
        report: sets tags on the run at once; called first with the tags of the edition, then for every epoch in which a
            rule fires.
        rows: epochs measured before an interruption; rules that fired in them are not reported again.

    Attributes:
        fired: rule → the first epoch at which it fired.
    """

    def __init__(
        self, watch: MonitoredRules, report: Callable[[Mapping[str, str]], None], rows: Sequence[EpochRow] = ()
    ):
        self.fired: dict[str, int] = {}
        self._watch = watch
        self._tell = report
        self._rules = [rule for rule in watch.edition.rules if is_watchable(rule)] if watch.edition else []
        for row in rows:
            self._look(row)
        tags = {schema.TAG_FIRST_FIRE_BY: watch.by, schema.TAG_STOP_ON: watch.wish}
        fires = {schema.first_fire_tag(code): str(epoch) for code, epoch in self.fired.items()}
        report({**{name: value for name, value in tags.items() if value}, **fires})

    def receive(self, row: EpochRow) -> None:
        """Check one epoch's metrics and tag the run with the rules that fired."""
        news = self._look(row)
        if news:
            self._tell({schema.first_fire_tag(code): str(row.epoch) for code in news})

    @property
    def ended_by(self) -> str:
        """Return why the run must end, `D1 at epoch 8`; empty if no rule that ends it has fired."""
        fired = [code for code in self._watch.stop_on if code in self.fired]
        first = min((self.fired[code] for code in fired), default=0)
        codes = "+".join(code for code in fired if self.fired[code] == first)
        return f"{codes} at epoch {first}" if fired else ""

    def _look(self, row: EpochRow) -> list[str]:
        news = [rule.code for rule in self._rules if rule.code not in self.fired and fires_now(rule, row.measurements)]
        self.fired |= dict.fromkeys(news, row.epoch)
        return news


def fired_text(fired: Mapping[str, int]) -> str:
    """Return `D1 fired at epoch 8, D2 fired at epoch 12`, for a line of progress."""
    return ", ".join(f"{code} fired at epoch {epoch}" for code, epoch in fired.items())
