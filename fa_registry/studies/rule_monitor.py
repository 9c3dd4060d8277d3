"""Monitoring of an edition's rules during training, with the option to end a run when a rule fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fa_registry import diagnostics
from fa_registry.errors import unknown_name_text
from fa_registry.protocol.edition_schema import LIMIT
from fa_registry.protocol.rule_evaluation import fires_now, inapplicable
from fa_registry.protocol.rules import Edition, Rule
from fa_registry.studies.editions import DEFAULT_EDITION, load_or_name, signature
from fa_registry.tracking import schema

if TYPE_CHECKING:
    from fa_registry.training.loop import EpochRow


@dataclass(frozen=True)
class MonitoredRules:
    """Rules that are checked during training.

    Attributes:
        edition: edition that contains the rules, or None if no rules are checked.
        stop_on: codes of the rules that end a run when they fire.
    """

    edition: Edition | None = None
    stop_on: tuple[str, ...] = ()

    @property
    def by(self) -> str:
        """Value of the tag TAG_FIRST_FIRE_BY: name and digest of the edition; empty if there is no edition."""
        return signature(self.edition.reference) if self.edition else ""

    @property
    def wish(self) -> str:
        """Value of the tag TAG_STOP_ON: the rules that may end a run; empty if no rule may end a run."""
        return f"{','.join(self.stop_on)} by {self.by}" if self.stop_on else ""

    def of(self, control: str) -> MonitoredRules:
        """Return the rules for a run with this control.

        Rules never end a control run early, because other runs are compared with control runs.
        """
        return self if control == "none" else MonitoredRules(self.edition)


UNWATCHED = MonitoredRules()


def checked_watch(edition: str, stop_on: str, problems: list[str]) -> MonitoredRules:
    """Return the rules to check during training, and append errors to `problems`.

    If `edition`, a name or path, is empty, the default edition is used. `stop_on` contains the comma-separated codes of the
    rules that end a run, e.g. `D1,D2`.
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
            watchable_codes = ", ".join(rule.code for rule in loaded.rules if is_watchable(rule)) or "none"
            problems.append(
                f"stop_on: {code} cannot be judged during training: the rule needs a control, other seeds, or metrics that "
                f"are measured at the end; expected one of these rules of edition {loaded.name}: {watchable_codes}"
            )
    return MonitoredRules(loaded, codes)


def is_watchable(rule: Rule) -> bool:
    """Return whether the metrics of one run at one epoch are sufficient to evaluate a rule."""
    cards = [diagnostic.card for diagnostic in diagnostics.CATALOG.members().values()]
    final_cards = [card for card in cards if card.when == "final"]
    needs_final = any(card.covers(condition.quantity) for card in final_cards for condition in rule.conditions)
    return rule.judge == LIMIT and not rule.reference and not needs_final


class Monitor:
    """Object that checks rules during one run and sets a tag for each rule that fires.

    Args:
        report: function that sets tags on the run.
        rows: metrics of the epochs before an interruption, if the run is resumed.
        stream: kind of stream of the network, see `architectures._stream.stream_of`; empty if it is not known.

    Attributes:
        fired: rule code → first epoch at which the rule fired.
    """

    def __init__(
        self,
        watch: MonitoredRules,
        report: Callable[[Mapping[str, str]], None],
        rows: Sequence[EpochRow] = (),
        stream: str = "",
    ):
        self.fired: dict[str, int] = {}
        self._watch = watch
        self._report = report
        rules = watch.edition.rules if watch.edition else ()
        self._rules = [rule for rule in rules if is_watchable(rule) and not inapplicable(rule, stream)]
        for row in rows:
            self._new_fires(row)
        tags = {schema.TAG_FIRST_FIRE_BY: watch.by, schema.TAG_STOP_ON: watch.wish}
        fires = {schema.first_fire_tag(code): str(epoch) for code, epoch in self.fired.items()}
        report({**{name: value for name, value in tags.items() if value}, **fires})

    def receive(self, row: EpochRow) -> None:
        """Evaluate the rules for one epoch, and set a tag for each rule that fires for the first time."""
        new_codes = self._new_fires(row)
        if new_codes:
            self._report({schema.first_fire_tag(code): str(row.epoch) for code in new_codes})

    @property
    def ended_by(self) -> str:
        """Reason to end the run, e.g. `D1 at epoch 8`; empty if the run must continue."""
        fired = [code for code in self._watch.stop_on if code in self.fired]
        first = min((self.fired[code] for code in fired), default=0)
        codes = "+".join(code for code in fired if self.fired[code] == first)
        return f"{codes} at epoch {first}" if fired else ""

    def _new_fires(self, row: EpochRow) -> list[str]:
        new_codes = [
            rule.code for rule in self._rules if rule.code not in self.fired and fires_now(rule, row.measurements)
        ]
        self.fired |= dict.fromkeys(new_codes, row.epoch)
        return new_codes


def fired_text(fired: Mapping[str, int]) -> str:
    """Return a text such as `D1 fired at epoch 8, D2 fired at epoch 12`."""
    return ", ".join(f"{code} fired at epoch {epoch}" for code, epoch in fired.items())
