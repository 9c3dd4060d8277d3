"""Watching a run while it trains: the edition's rules on every epoch's figures, and ending the run where one fires."""

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
    """What to look out for: the edition's rules (None: nothing), and which of them end the run."""

    edition: Edition | None = None
    stop_on: tuple[str, ...] = ()

    @property
    def by(self) -> str:
        """Which rules are looked at, for a tag."""
        return signature(self.edition.reference) if self.edition else ""

    @property
    def wish(self) -> str:
        """What may end the run; equal wishes end equal runs at the same epoch. Empty: nothing may."""
        return f"{','.join(self.stop_on)} by {self.by}" if self.stop_on else ""

    def of(self, control: str) -> MonitoredRules:
        """The watch over a run: a control is never judged, and others are measured against it, so no rule ends it."""
        return self if control == "none" else MonitoredRules(self.edition)


UNWATCHED = MonitoredRules()


def checked_watch(edition: str, stop_on: str, problems: list[str]) -> MonitoredRules:
    """The watch that was asked for (edition: a name or path, stop_on: `D1,D2`); what is wrong is added to `problems`."""
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
                f"stop_on: {code} cannot be judged while a run trains: it needs a control, other seeds or figures that "
                f"are measured at the end; expected of edition {loaded.name}: {can}"
            )
    return MonitoredRules(loaded, codes)


def is_watchable(rule: Rule) -> bool:
    """Whether one run's figures at one epoch are enough to judge by it."""
    cards = [diagnostic.card for diagnostic in diagnostics.CATALOG.members().values()]
    late = [card for card in cards if card.when == "final"]
    at_the_end = any(card.covers(condition.quantity) for card in late for condition in rule.conditions)
    return rule.judge == LIMIT and not rule.reference and not at_the_end


class Monitor:
    """Hears every epoch of one run. fired: rule → the first epoch at which it fired.

    tell: sets tags on the run, at once; called for the watch itself and then once a rule.
    rows: epochs that an interrupted run had measured: what fired in them is not lost, and is not news.
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
        """Look at one epoch's figures and tag the run with what fired in it."""
        news = self._look(row)
        if news:
            self._tell({schema.first_fire_tag(code): str(row.epoch) for code in news})

    @property
    def ended_by(self) -> str:
        """Why the run is to end, `D1 at epoch 8`; empty while nothing that may end it has fired."""
        fired = [code for code in self._watch.stop_on if code in self.fired]
        first = min((self.fired[code] for code in fired), default=0)
        codes = "+".join(code for code in fired if self.fired[code] == first)
        return f"{codes} at epoch {first}" if fired else ""

    def _look(self, row: EpochRow) -> list[str]:
        news = [rule.code for rule in self._rules if rule.code not in self.fired and fires_now(rule, row.measurements)]
        self.fired |= dict.fromkeys(news, row.epoch)
        return news


def fired_text(fired: Mapping[str, int]) -> str:
    """`D1 fired at epoch 8, D2 fired at epoch 12`, for a line of progress."""
    return ", ".join(f"{code} fired at epoch {epoch}" for code, epoch in fired.items())
