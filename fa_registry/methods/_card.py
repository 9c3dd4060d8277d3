"""Card of a training method, which is read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fa_registry.errors import PluginError
from fa_registry.records import Option
from fa_registry.tasks import CATALOG as TASKS
from fa_registry.tasks import Task, TaskCard

GAMMA_REFERENCES = ("bp", "gauss_newton", "informational", "none")
EXACT_SITES = ("none", "last", "all")
CREDIT_SCALES = ("sum", "mean")
SAMPLE_TASKS = ("classification", "regression")  # with one target per sample
ALL_TASKS = (*SAMPLE_TASKS, "token_prediction")
# Properties that the negated credit −c does not have. Without one of them, B and −B, or c and −c, pass the same checks.
SIGN_PROPERTIES = (
    "exact",
    "approaches_bp",
    "block_jacobian_gives_bp",
    "output_jacobian_gives_bp",
    "transposed_weights_give_bp",
    "usf_on_sign_weights_gives_bp",
    "prediction_errors_give_bp",
    "fixed_prediction_gives_bp",
    "output_jacobian_gives_target_slope",
    "modulation_gives_bp_at_the_input",
)
REQUIRED = ("name", "rule", "citation", "bibtex", "equations", "architectures", "feedback")


@dataclass(frozen=True)
class MethodCard:
    """Description of a method.

    fa_registry.conformance measures whether the method has the declared `properties`.

    Args:
        deviations: differences from the source. Reporting forms number them in this order.
        architectures: names of supported architectures, or ("any",).
        gamma_reference: the direction with which Γ compares the credit.
        exact_sites: sites at which the credit equals the gradient by construction: "none", "last" (site L) or "all".
        feedback: description of the distribution of the feedback state.
        unsupported: sentence that explains why the method does not support other architectures.
        unsupported_options: option and value of an architecture, such as "norm_place=post" → sentence that explains why the method
            does not support it.
        has_feedback: whether the method has a feedback state, which a run saves. If not, its Γ needs no saved feedback.
        learned: whether the feedback learns. If so, Γ has no null distribution, because newly drawn feedback would be untrained.
        credit_scale: "sum" if the source normalises the credit of the summed loss (an error e without 1/N), "mean" if the source
            normalises the credit of the mean loss. In this package, credits always belong to the summed loss. credit_scale only
            determines ε in norm(c), which is 1e-6 for "sum" and N·1e-6 for "mean".
        credit_scale_source: reference for credit_scale.
        version: version of a built-in method, increased whenever the method's results change.
        needs_autograd: whether credits() differentiates through `inputs.network`. Reporting forms show this value. If false, the
            method receives a network that returns values without gradients (fa_registry.training.method_calls).
        may_reach_bp: whether the credit may become equal to the gradient while the feedback learns. For any other method, an audit
            warns if the credit becomes equal to the gradient.
        anchor_steps: description of the steps that train with the exact gradient, or an empty text. Reporting forms show it.
        prediction: how the method predicts by itself (base.HasOwnPrediction). Empty if the head predicts.
        tasks: names of the tasks that the method trains. The method also trains any task whose card has the same `positions` as
            that of a listed task.
        local_heads: whether the blocks learn by the losses of local heads. Such a method can be compared with the control
            `deep_supervision`, which trains the same heads and all blocks by backpropagation.
    """

    name: str
    rule: str
    citation: str
    bibtex: str
    equations: str
    deviations: tuple[str, ...]
    architectures: tuple[str, ...]
    gamma_reference: str
    exact_sites: str
    feedback: str
    properties: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    unsupported: str = ""
    unsupported_options: Mapping[str, str] = field(default_factory=dict)
    learned: bool = False
    has_feedback: bool = True
    credit_scale: str = "sum"
    credit_scale_source: str = ""
    version: int = 1
    needs_autograd: bool = False
    may_reach_bp: bool = False
    anchor_steps: str = ""
    tasks: tuple[str, ...] = SAMPLE_TASKS
    prediction: str = ""
    local_heads: bool = False

    def __post_init__(self):
        problems = [name for name in REQUIRED if not getattr(self, name)]
        if self.gamma_reference not in GAMMA_REFERENCES:
            problems.append(f"gamma_reference (one of {', '.join(GAMMA_REFERENCES)})")
        if self.exact_sites not in EXACT_SITES:
            problems.append(f"exact_sites (one of {', '.join(EXACT_SITES)})")
        if self.credit_scale not in CREDIT_SCALES:
            problems.append(f"credit_scale (one of {', '.join(CREDIT_SCALES)})")
        if self.architectures and "any" not in self.architectures and not self.unsupported:
            problems.append("unsupported (the reason why the method does not support other architectures)")
        if problems:
            raise PluginError(f"the card of method {self.name!r} has missing or invalid fields: {', '.join(problems)}")

    @property
    def fixes_sign(self) -> bool:
        """Whether a declared property determines the sign of the credit."""
        return not set(SIGN_PROPERTIES).isdisjoint(self.properties)

    def is_exact(self, site: int, blocks: int) -> bool:
        """Return whether the credit at `site` equals the gradient by construction.

        At such a site, Γ = 1 is trivial. `blocks` is L, the number of the last site.
        """
        return self.exact_sites == "all" or (self.exact_sites == "last" and site == blocks)

    @property
    def reaches_bp(self) -> bool:
        """Whether the card declares that the credit can equal the gradient at every site.

        This is true if the credit equals the gradient, approaches it, or may learn to equal it.
        """
        return self.exact_sites == "all" or "approaches_bp" in self.properties or self.may_reach_bp

    def supports(self, architecture: str) -> bool:
        """Return whether the method may be trained on the architecture with this name."""
        return "any" in self.architectures or architecture in self.architectures

    def trains(self, task: Task | TaskCard) -> bool:
        """Return whether the method may be trained on a task."""
        card = task if isinstance(task, TaskCard) else task.card
        listed = (TASKS.describe(name).card for name in self.tasks)
        return card.name in self.tasks or any(other.by_position == card.by_position for other in listed)
