"""What an executor is: many jobs, one piece of work, and everyone who wants to hear is told how each job goes.

A job is data and the work is a module-level function, so that both can be sent to another process or another machine. A
package brings an executor of its own by an entry point in the group `fa_registry.executors`.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from fa_registry.errors import Interrupted, RegistryError

Stop = Callable[[], bool]
Work = Callable[[Any, Stop, Callable[[Any], None]], Generator[None, None, Any]]

ENDS = ("done", "failed", "stopped")
SILENCE = 86_400  # seconds: a day, far more than an epoch of a shipped study takes


@dataclass(frozen=True)
class JobEvent:
    """kind: progress (value is what the job told), done (its result), failed (text of the error), stopped; again (why it had to
    begin once more).

    index: of the job in the sequence that the executor was given. refused: of one failed, value is the sentence of a RegistryError,
    no traceback, and this its exit code. lost: of one failed, its process was killed, gave no sign of life
    or never began: nobody knows what the job itself would have come to.
    """

    index: int
    kind: str
    value: Any = None
    lost: bool = False
    refused: int = 0


Tell = Callable[[JobEvent], None]


@dataclass(frozen=True)
class Resources:
    """What the jobs may take. at_once: how many run at a time. device: cpu or cuda, of all. threads: of one job, on the CPU.

    silence: seconds without a report after which a job counts as hung and its process, where it has one, is ended; 0: never.
    """

    at_once: int = 1
    device: str = "cpu"
    threads: int = 1
    silence: float = SILENCE


class Executor(ABC):
    """One way to run jobs. A subclass is bound as `PLUGIN` of its module."""

    @abstractmethod
    def run(self, jobs: Sequence[Any], work: Work, resources: Resources, stop: Stop, tell: Tell) -> None:
        """Run every job to its end; returns when all have ended, raises nothing that a job raised.

        jobs: what is to be done, picklable. work: `work(job, stop, report)` is a generator that does one of them: it yields
        where it waits for a device and others may go on, and returns the job's result; `ended` goes through it. resources: what
        they may take together. stop: asked between steps; once true, jobs that have not begun are told as stopped, and those
        at work end at their next safe point (they ask too). tell: called in this process, for every report of a job
        (progress), where it has to begin once more (again), and exactly once for its end (done, failed or stopped).
        """


def ended(index: int, ending: Callable[[], Any]) -> JobEvent:
    """The event of a job whose last part is `ending`: done, stopped, or failed, with a sentence or a traceback."""
    try:
        return JobEvent(index, "done", ending())
    except Interrupted as interruption:
        return JobEvent(index, "stopped", str(interruption))
    except RegistryError as error:
        return JobEvent(index, "failed", str(error), refused=error.exit_code)
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    except SystemExit as exit:  # sys.exit() in a method would end all jobs with it, as if nothing were wrong
        return JobEvent(
            index, "failed", f"{traceback.format_exc()}its code asked to end the process (sys.exit({exit.code!r}))"
        )
