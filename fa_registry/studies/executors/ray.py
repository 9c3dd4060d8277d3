"""Ray executor: runs jobs in processes of a Ray cluster.

The store determines what is trained; Ray determines only the machine. Each process is a Ray actor. An actor runs its jobs in a
thread and returns their messages on request. Therefore no job waits for a result of Ray. If a job waited, Ray would give the job's
CPU to another job. When the process that started the actors ends, Ray ends the actors. The leases of their runs then expire, the
runs are closed, and the user resumes the runs by repeating the command (docs/many-machines.md).
"""

from __future__ import annotations

import os
import pickle
import queue
import re
import signal
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from fa_registry.errors import UsageError
from fa_registry.studies.environment_versions import unequal, versions
from fa_registry.studies.executors.base import (
    Capacity,
    EventSink,
    Executor,
    JobFunction,
    JobResources,
    StopCheck,
    of_a_cluster,
)
from fa_registry.studies.scheduler import BEGINS, Message, Process, ProcessLost, Scheduler, do_batch, log_to

ALONE = "local"  # Ray's name for a cluster of this machine only, created for this process
RUNNING = "auto"  # Ray's name for the cluster that was started on this machine
ADDRESS = re.compile(r"(?P<host>[^\s/:]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
ANSWERS = 5.0  # seconds that a cluster may take to answer; Ray itself retries for minutes
SETTINGS = b"\4"  # follows the length in the first answer of an HTTP/2 server, such as gRPC
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + b"\0" * 5  # RFC 9113, section 3.4
VERSION_SECONDS = 120.0  # seconds in which the machines of a cluster must report their versions
# memory for the small objects of a cluster of this machine; Ray's default is a third of the memory
STORE_BYTES = 100_000_000
BROKEN = "broken"  # message of a process that could not start any job
# Ray sends no usage statistics and prints no advice
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class Ray(Executor):
    """Executor for a Ray cluster, with one process per job or per GPU (docs/many-machines.md)."""

    def problems(self, resources: JobResources) -> list[str]:
        """Return the reasons why Ray cannot run the jobs: no package, a wrong address, or no server there."""
        address = _address(resources)
        problems = of_a_cluster("ray", resources)
        if address in (ALONE, RUNNING):
            return problems
        match = ADDRESS.fullmatch(address)
        if not match:
            return [*problems, f"address: expected HOST:PORT of a Ray cluster, {RUNNING} or {ALONE}; found {address!r}"]
        reason = _unanswered(match["host"].strip("[]"), int(match["port"]))
        advice = f"address: {reason} at {address}; see `ray status` on the cluster's head node"
        return [*problems, advice] if reason else problems

    @contextmanager
    def opened(self, resources: JobResources) -> Iterator[Capacity]:
        """Connect to the cluster and yield its capacity.

        Raises:
            UsageError: a machine has other versions, or no machine has enough resources for one process.
        """
        with _connected(_address(resources)):
            import ray

            nodes = [node for node in ray.nodes() if node["Alive"]]
            at_once = _room(resources, nodes)
            check_versions(nodes, versions())
            yield Capacity(at_once, frozenset(node["NodeManagerHostname"] for node in nodes))

    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, report: EventSink
    ) -> None:
        """Run each batch of jobs in an actor as soon as the cluster has enough capacity."""
        with _connected(_address(resources)):
            Scheduler(jobs, work, resources, stop, report, partial(_Actor, resources)).run()


def _address(resources: JobResources) -> str:
    return resources.address or os.environ.get("RAY_ADDRESS", "") or RUNNING


def _unanswered(host: str, port: int) -> str:
    """Return the reason why no Ray server can be reached; empty if a server responds."""
    try:
        with socket.create_connection((host, port), ANSWERS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return ""
            connection.sendall(HELLO)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        return f"no server responds ({error})"
    other_server = "found a server other than Ray's (Ray's port is 6379, unless `ray start --port` sets another port)"
    return "" if answer[3:4] == SETTINGS else other_server


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to a cluster within the context, if this process is not yet connected."""
    import ray

    if ray.is_initialized():
        yield
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    ray._private.worker._worker_logs_enabled = False  # otherwise Ray prints the cluster's errors on standard output
    local_options = {"object_store_memory": STORE_BYTES, "include_dashboard": False} if address == ALONE else {}
    previous_handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local_options)
    except ConnectionError as error:
        raise UsageError(
            f"executor ray: no cluster at {address!r} ({_text(error)}). Start one with `ray start --head`, use --address "
            f"HOST:PORT, or use --address {ALONE} for a cluster of this machine only"
        ) from error
    except (RuntimeError, ValueError) as error:  # the cluster has other versions of Python or Ray
        raise UsageError(f"executor ray: the cluster at {address!r} refuses the connection: {_text(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, previous_handler)  # Ray installs its own handler
    try:
        yield
    finally:
        ray.shutdown()


def _needs(resources: JobResources) -> dict[str, float]:
    """Return the resources of one process, whose jobs share a GPU and run in turns."""
    amounts = {"CPU": resources.cpus, "GPU": float(resources.on_cards), "memory": resources.memory * resources.in_turns}
    return {name: amount for name, amount in amounts.items() if amount}


def _room(resources: JobResources, nodes: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of jobs that fit on the cluster; raise UsageError if no job fits."""
    demand = _needs(resources)
    processes = sum(
        min(int(node["Resources"].get(name, 0) / amount) for name, amount in demand.items()) for node in nodes
    )
    if not processes:
        largest = {name: max((node["Resources"].get(name, 0) for node in nodes), default=0) for name in demand}
        raise UsageError(
            f"executor ray: no machine of the cluster ({len(nodes)} in all) has enough resources for a process with "
            f"{_amounts(demand)}; the maximum on one machine is {_amounts(largest)}. "
            f"Reduce --cpus-per-run, --gpus-per-run or --memory, or add machines"
        )
    return processes * resources.in_turns


def _amounts(amounts: Mapping[str, float]) -> str:
    text = [f"{amount:g} {name}" for name, amount in amounts.items() if name != "memory"]
    return ", ".join([*text, *(f"{amounts['memory'] / 2**30:.1f} GiB" for _ in [0] if "memory" in amounts)])


def check_versions(nodes: Sequence[Mapping[str, Any]], local_versions: Mapping[str, str]) -> None:
    """Raise UsageError if a node of `ray.nodes` has other versions than this machine, or reports none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    get_versions = ray.remote(num_cpus=0, max_retries=0)(versions)
    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    answers = [get_versions.options(scheduling_strategy=place).remote() for place in places]
    node_of_answer = dict(zip(answers, nodes, strict=True))
    ray.wait(list(node_of_answer), num_returns=len(node_of_answer), timeout=VERSION_SECONDS)
    problems = []
    for answer, node in node_of_answer.items():
        host = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            problems.append(unequal(local_versions, ray.get(answer, timeout=0), host))
        except ray.exceptions.GetTimeoutError:
            problems.append(f"{host} did not report its versions within {VERSION_SECONDS:.0f} s")
        except ray.exceptions.RayError as error:
            problems.append(
                f"{host} cannot import fa_registry ({_text(error)}); install the packages of this machine on {host}"
            )
    if failures := [problem for problem in problems if problem]:
        raise UsageError(f"executor ray: {'; '.join(failures)}")


def _text(error: BaseException) -> str:
    """Return the end of a Ray error message on one line, without the list of ids."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    return " ".join(lines[-2:])[:400]


class _Actor(Process):
    """Actor that runs one batch.

    The actor replies with the message BEGINS. `reported` reads this reply before all other messages. Therefore the batch counts as
    begun, even if one of its jobs ends the process.
    """

    def __init__(self, resources: JobResources, message: bytes):
        import ray

        demand = _needs(resources)
        self.handle = (
            ray.remote(_Worker)
            .options(
                num_cpus=demand.get("CPU", 0),
                num_gpus=demand.get("GPU", 0),
                memory=demand.get("memory"),
                max_concurrency=3,  # threads for `reported`, for a stop request and for `begin`
                scheduling_strategy="SPREAD",
            )
            .remote()
        )
        self._answers = [self.handle.begin.remote(message), self.handle.reported.remote()]

    def reported(self) -> list[Message]:
        """Return the messages that the actor has sent since the last call."""
        import ray

        ready = ray.wait(self._answers, num_returns=len(self._answers), timeout=0)[0]
        answer = next((answer for answer in self._answers if answer in ready), None)
        if answer is None:
            return []
        try:
            messages = ray.get(answer)
        except ray.exceptions.RayError as error:
            raise ProcessLost(f"was lost: {_text(error)}") from error
        self._answers.remove(answer)
        if messages != [BEGINS]:
            self._answers.append(self.handle.reported.remote())
        for _, kind, value, _ in messages:
            if kind == BROKEN:
                raise ProcessLost(f"could not begin: {pickle.loads(value)}")
        return messages

    def ask_to_stop(self) -> None:
        self.handle.ask_to_stop.remote()

    def end(self, seconds: float = 0.0) -> None:
        import ray

        ray.kill(self.handle)


class _Worker:
    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._asked = threading.Event()
        log_to(self._messages.put)

    def begin(self, message: bytes) -> list[Message]:
        threading.Thread(target=self._do, args=(message,), name="jobs", daemon=True).start()
        return [BEGINS]

    def _do(self, message: bytes) -> None:
        try:
            do_batch(message, self._asked.is_set, self._messages.put)
        except BaseException:
            self._messages.put((0, BROKEN, pickle.dumps(traceback.format_exc()), 0))

    def reported(self) -> list[Message]:
        """Wait for at least one message; return all messages since the last call."""
        messages = [self._messages.get()]
        while not self._messages.empty():
            messages.append(self._messages.get())
        return messages

    def ask_to_stop(self) -> None:
        self._asked.set()


PLUGIN = Ray()
