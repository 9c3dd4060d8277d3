"""The checklist of pitfalls (protocol.md §5), answered from the records: nothing here is typed by hand or always the same."""

from __future__ import annotations

from collections.abc import Callable

from fa_registry.protocol.grouping import Group
from fa_registry.protocol.verdict import stands
from fa_registry.reporting import pitfalls_credit, pitfalls_design, pitfalls_figures
from fa_registry.reporting.pitfalls_words import UNKNOWN, VIOLATED, WORST_FIRST, Answer, Asked, Pitfall, Said
from fa_registry.reporting.sources import Sources

NO_EVIDENCE = "the run's figures are not those of what is sealed with it, so that they show nothing"
Question = tuple[str, str, Callable[[Asked], Said]]  # title, lint rule, what answers it for one run
QUESTIONS: tuple[Question, ...] = (  # in the order of protocol.md, numbered from 1
    ("norm(-1), the L₋₁ norm of the whole tensor, for a norm of samples", "FA001", pitfalls_figures.norm_of_samples),
    ("a cosine clamped at 1e-8, which shrinks where a norm is smaller", "FA002", pitfalls_figures.unclamped_cosine),
    ("gradients below 6e-8 that underflow in fp16", "FA003", pitfalls_figures.no_underflow),
    ("a Γ that fresh draws of the feedback give as well", "", pitfalls_credit.own_feedback),
    ("Γ by one aggregation alone, where the choice moves it", "", pitfalls_credit.every_aggregation),
    ("a mean Γ that one layer carries", "", pitfalls_credit.no_single_site),
    ("a Γ of 1.0, or any, where the feedback was not saved", "FA007", pitfalls_credit.saved_feedback),
    ("per-sample and mean-reduced gradients confused", "FA008", pitfalls_figures.per_sample_gradients),
    ("accuracy of the eval batch instead of the test set", "", pitfalls_figures.accuracy_of_test_set),
    ("frozen control of another setting, or stated by hand", "", pitfalls_design.own_control),
    ("seeds chosen after the fact or differing between methods", "", pitfalls_design.same_seeds),
    ("BatchNorm or dropout in training mode while measuring", "", pitfalls_figures.eval_mode),
)


def pitfalls(group: Group, sources: Sources) -> tuple[Pitfall, ...]:
    """Every item of the checklist for the runs of one method in one setting."""
    asked = [Asked(run, group.runs, sources) for run in group.runs]
    return tuple(
        Pitfall(number, title, lint, _answers(asked, question))
        for number, (title, lint, question) in enumerate(QUESTIONS, 1)
    )


def _answers(asked: list[Asked], question: Callable[[Asked], Said]) -> tuple[Answer, ...]:
    """Runs that are answered in the same words stand together; the worst first."""
    alike: dict[Said, list[str]] = {}
    for one in asked:
        alike.setdefault(_said(one, question), []).append(one.run.record.run_id)
    found = [Answer(outcome, evidence, tuple(run_ids)) for (outcome, evidence), run_ids in alike.items()]
    return tuple(sorted(found, key=lambda answer: WORST_FIRST.index(answer.outcome)))


def _said(asked: Asked, question: Callable[[Asked], Said]) -> Said:
    """A run whose figures are not those of what is sealed is no evidence that anything was avoided."""
    said = question(asked)
    return said if stands(asked.run.record) or said[0] == VIOLATED else (UNKNOWN, NO_EVIDENCE)
