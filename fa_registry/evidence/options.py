"""Options that decide how the metrics of runs are recomputed.

To add an option, add a field to the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fa_registry.option_table import nested, option
from fa_registry.studies.executors.base import ClusterOptions
from fa_registry.studies.options import AUTO, device_option, executor_option

# for commands that always recompute runs, and for commands that recompute runs only on request
measuring_jobs = partial(
    option,
    0,
    "Number of processes that recompute runs in parallel [one per core, if this saves time].",
    metavar="N",
)


@dataclass(frozen=True)
class RemeasureOptions:
    """Options that decide whether and how the metrics of runs are recomputed.

    Attributes:
        device: GPU that recomputes runs that were trained on a GPU, e.g. `cuda:1`.
        executor: executor that recomputes the runs. If empty, the runs are recomputed on this machine.
    """

    trust_logged: bool = option(False, "Judge the logged metrics without recomputing them.")
    jobs: str | int = measuring_jobs()
    replay: str | int = option(
        AUTO,
        "Training steps to replay. auto: 8 steps of every run, then all steps of one run per group and of every frozen control, "
        "as many as --replay-budget allows; all: all steps of every run; N: the first N steps of every run; off: none. "
        "auto takes about half of the CPU time of the training.",
        metavar="N|auto|all|off",
    )
    replay_budget: str | float = option(
        "3m",
        "CPU time that auto may spend on complete replays, such as 90s, 10m or 2h. On another processor than that of the training, "
        "auto replays every run that fits.",
        python='CPU time that `replay="auto"` may spend on complete replays: seconds, or a text such as 90s, 10m or 2h.',
        metavar="TIME",
    )
    nonce: str = option(
        "",
        "Nonce (random number) of an earlier audit, to replay the same runs completely [a new nonce].",
        metavar="HEX",
    )
    factories: tuple[str, ...] = option(
        (),
        "Trusted function that builds the model of a user-supplied training loop, to recompute the runs of this loop; repeatable.",
        "--factory",
        python="Trusted functions that build the models of user-supplied loops, to recompute the metrics of their runs.",
        is_list=True,
        repeats=True,
        metavar="PACKAGE.MODULE:FUNCTION",
    )
    executor: str = executor_option()
    cluster: ClusterOptions = nested(ClusterOptions)
    device: str = device_option()


LOGGED = RemeasureOptions(trust_logged=True)


@dataclass(frozen=True)
class RecomputeOptions:
    """Options of commands that use logged metrics and recompute these metrics only on request."""

    recompute: bool = option(
        False,
        "Recompute the metrics of every run first, or use the logged metrics [--trust-logged].",
        "--recompute/--trust-logged",
        python="If True, recompute the metrics of every run first. By default, the logged metrics are used.",
    )
    jobs: int | str = measuring_jobs()
    device: str = device_option()

    @property
    def measuring(self) -> RemeasureOptions:
        return RemeasureOptions(not self.recompute, self.jobs, device=self.device)
