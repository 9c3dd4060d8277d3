"""Golden numbers of every built-in member, each with the version on its card: `python -m tests.golden [--write]`.

Only that version distinguishes a run of a member from one of the member as it is today, so a change of its numbers must raise
it. Numbers are compared, not bytes: another processor's last bits are no change. Weights come from a formula and not from a
generator, whose float32 draws differ in their last bits between processors; what is drawn is compared separately, more loosely.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry import architectures, datasets, diagnostics, jsonio, methods
from fa_registry.conformance.small_networks import CLASSES, SMALL, NetworkCase, Setting, batch, input_shape
from fa_registry.diagnostics.base import MOMENTS
from fa_registry.plugin_registry import Catalog
from fa_registry.records import Measurements
from fa_registry.seeding import generator
from fa_registry.training.measuring import measure
from tests.helpers.tiny_tasks import double, supported, tiny_task

FILE = Path(__file__).with_name("golden.json")
STEPS, SAMPLES = 3, 64
EXACT, DRAWN = 1e-9, 1e-5  # of a number's own scale: computed in float64; drawn in float32, or made from such draws
TASKS = (  # one after another until every diagnostic has had something to measure
    {"method": "dfa"},
    {"method": "credit_bridge"},
    {"method": "dfa", "architecture": "linear_lq", "dataset": "lq", "architecture_options": {}},
    {"method": "dfa", "architecture": "small_cnn", "architecture_options": {"width": 2, "num_blocks": 3}},
)

Numbers = dict[str, list[float]]  # what → scale, then numbers that are compared relative to it


def fingerprint(tensors: Iterable[Tensor]) -> list[float]:
    """[norm, inner product with a fixed direction] of all tensors as one vector: any change of an entry moves one of them."""
    flat = torch.cat([tensor.detach().double().flatten() for tensor in tensors])
    return [flat.norm().item(), (flat @ torch.cos(torch.arange(1, len(flat) + 1, dtype=torch.float64))).item()]


def filled(module: nn.Module) -> nn.Module:
    """The module with every matrix and kernel overwritten by a formula; vectors and numbers, which hold options, stay."""
    state = {
        name: value for name, value in module.state_dict().items() if value.is_floating_point() and value.dim() > 1
    }
    with torch.no_grad():
        for start, value in enumerate(state.values(), start=1):
            places = torch.arange(value.numel(), dtype=torch.float64)
            value.copy_((torch.sin(places * 1.7 + start) / value[0].numel() ** 0.5).reshape(value.shape))
    return module


def of_method(name: str) -> Numbers:
    """Its credits and, after a few steps, all parameters and the feedback state, in float64; and the feedback as it is drawn."""
    subject = methods.CATALOG.get(name)
    architecture = architectures.CATALOG.get(supported(name).get("architecture", "resmlp"))
    options = {option: value for option, value in SMALL.items() if option in architecture.card.options}
    images, labels = batch(0, SAMPLES)
    case: NetworkCase = dataclasses.replace(
        Setting(subject, architecture, options, 0).case(), images=images, labels=labels
    )
    drawn = list(case.feedback.state_dict().values())
    numbers = {"drawn feedback": fingerprint(drawn)} if drawn else {}
    filled(case.network), filled(case.feedback)
    for site, credit in enumerate(case.credits(case.inputs())):
        numbers[f"credit {site}"] = fingerprint([credit])
    case.train(STEPS)
    trained = [*case.network.state_dict().values(), *case.feedback.state_dict().values()]
    return {**numbers, f"weights after {STEPS} steps": fingerprint(trained)}


def of_architecture(name: str) -> Numbers:
    """Its weights as they are drawn, and what it makes of a batch, in float64."""
    subject = architectures.CATALOG.get(name)
    options = subject.resolve({one: value for one, value in SMALL.items() if one in subject.card.options})
    shape = input_shape(subject)
    network = subject.build(options, shape, CLASSES, generator(0, "init")).double().eval()
    numbers = {f"drawn {key}": fingerprint([value]) for key, value in network.state_dict().items() if value.dim()}
    logits, hidden = filled(network)(batch(0, SAMPLES, shape)[0], return_hidden=True)
    return {**numbers, "logits": fingerprint([logits]), "hidden": fingerprint(hidden)}


def of_dataset(name: str) -> Numbers:
    """The first images and labels of its splits."""
    splits = datasets.get(name).load(torch.device("cpu"), None, 0)
    tensors = {key: getattr(splits, key) for key in ("train_images", "train_labels", "test_images", "test_labels")}
    return {f"drawn {key}": [*fingerprint([value[:8]]), float(len(value))] for key, value in tensors.items()}


def of_diagnostics() -> dict[str, Numbers]:
    """Every diagnostic's figures on the first of TASKS that it has any on. They rest on float32 draws of feedback and noise."""
    found: dict[str, Numbers] = {}
    for changes in TASKS:
        task = double(tiny_task(**changes))
        initial = {name: value.clone() for name, value in task.network.state_dict().items()}
        filled(task.network), filled(task.feedback)
        measured = measure(task, "", MOMENTS, initial)
        for name in diagnostics.CATALOG.names():
            numbers = _of_diagnostic(measured, diagnostics.CATALOG.get(name).card.names)
            if numbers and name not in found:
                found[name] = numbers
    return found


def _of_diagnostic(measured: Measurements, quantities: Iterable[str]) -> Numbers:
    stems = tuple(name.removesuffix("*") for name in quantities)
    rows = {**measured.sites, **{name: (reading,) for name, reading in measured.scalars.items()}}
    numbers = {}
    for name, row in rows.items():
        values = [reading.value for reading in row if reading.value is not None]
        if values and (name in stems or name.startswith(tuple(stem for stem in stems if stem.endswith("/")))):
            numbers[f"drawn {name}"] = [max(map(abs, values)), *values]
    return numbers


def own(catalog: Catalog) -> list[str]:
    return [name for name in catalog.names() if catalog.location(name).is_builtin]


def has_files(name: str) -> bool:
    """Whether a data set is read from files, which have digests; a family of data sets has no card of its own."""
    return name == "text" or bool(getattr(getattr(datasets.CATALOG.get(name), "card", None), "files", ()))


def _datasets() -> list[str]:
    """The built-in data sets that draw their samples; random_targets with the digits."""
    drawn = [name for name in own(datasets.CATALOG) if not has_files(name)]
    return [f"{name}:digits" if name == "random_targets" else name for name in drawn]


def today() -> dict[str, dict[str, Any]]:
    """`methods/dfa` → {version, numbers} of every built-in member as it is now."""
    diagnosed = of_diagnostics()
    rows = {
        **{f"methods/{name}": (methods.CATALOG.get(name), of_method(name)) for name in own(methods.CATALOG)},
        **{
            f"architectures/{name}": (architectures.CATALOG.get(name), of_architecture(name))
            for name in own(architectures.CATALOG)
        },
        **{f"datasets/{name}": (datasets.get(name), of_dataset(name)) for name in _datasets()},
        **{
            f"diagnostics/{name}": (diagnostics.CATALOG.get(name), diagnosed.get(name, {}))
            for name in own(diagnostics.CATALOG)
        },
    }
    return {key: {"version": member.card.version, "numbers": numbers} for key, (member, numbers) in rows.items()}


def problems(held: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What is wrong, a line a member: numbers that changed under one version, a version that fell, members without numbers."""
    lines = []
    for key, now in found.items():
        before = held.get(key)
        if before is None:
            lines.append(f"{key}: has no golden numbers yet; write them: python -m tests.golden --write")
        elif now["version"] < before["version"]:
            lines.append(f"{key}: version {before['version']} → {now['version']}; a version never falls")
        elif changed := differing(before["numbers"], now["numbers"]):
            if now["version"] == before["version"]:
                lines.append(
                    f"{key}: {changed} under version {now['version']}. If that was meant, set version="
                    f"{now['version'] + 1} on its card and run python -m tests.golden --write; runs of the old numbers "
                    "are then trained again"
                )
            else:
                lines.append(f"{key}: version {now['version']} is not written yet: python -m tests.golden --write")
        elif now["version"] != before["version"] or now["numbers"].keys() != before["numbers"].keys():
            lines.append(f"{key}: version {now['version']} is not written yet: python -m tests.golden --write")
    return [*lines, *(f"{key}: is gone, its golden numbers are not" for key in held if key not in found)]


def refusals(held: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Those of the problems that writing must not sweep away."""
    return [line for line in problems(held, found) if " under version " in line or "never falls" in line]


def differing(before: Numbers, now: Numbers) -> str:
    """The first number that is another one, in words; empty where all agree.

    A number that was added is no change: older runs have not logged it, and their other numbers are recomputed as they were.
    """
    if lost := before.keys() - now.keys():
        return f"lost quantities ({', '.join(sorted(lost))})"
    for what, numbers in before.items():
        allowed = (DRAWN if what.startswith("drawn") else EXACT) * max(abs(numbers[0]), 1e-12)
        if len(numbers) != len(now[what]) or any(abs(a - b) > allowed for a, b in zip(numbers, now[what], strict=True)):
            return f"{what} changed from {numbers} to {now[what]}"
    return ""


def kept(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is held of a member that is as it was: another processor's last digits are no change, and would hide one."""
    if not before or before["version"] != now["version"] or differing(before["numbers"], now["numbers"]):
        return now
    return {**before, "numbers": {**now["numbers"], **before["numbers"]}}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="write the file again, unless a number changed unversioned"
    )
    wanted = parser.parse_args(arguments)
    torch.set_num_threads(1)
    held, found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}, today()
    wrong = (refusals if wanted.write else problems)(held, found)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    written = {key: kept(held.get(key), now) for key, now in found.items()}
    changed = [key for key in written.keys() | held.keys() if written.get(key) != held.get(key)]
    if wanted.write:
        FILE.write_text(jsonio.pretty(written), encoding="utf-8")
    written_names = f"; written: {', '.join(sorted(changed))}" if wanted.write and changed else ""
    print(f"{len(found)} members, {len(found.keys() - changed)} as they were{written_names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
