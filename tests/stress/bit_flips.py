"""Flipped bits: one in a file of every kind that a store hands out or reads back; each must be found, and reported in a sentence.

    python -m tests.stress.bit_flips --flips 1000

The bits of the database itself are no part of it: every audit compares it with the files of the manifest.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fa_registry import load_model
from fa_registry.audits.verify import verify_runs
from fa_registry.errors import RegistryError
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.training.resume import ResumeFile
from fa_registry.training.trainer import Trainer
from tests.commands.promotion import Judged, judged_study
from tests.helpers.tiny_tasks import tiny_task

NAME = "flipped"  # of the promoted model
LOADED = (schema.PROVENANCE, schema.SPEC, schema.FINAL, schema.FEEDBACK)  # files that load_model reads
KIND = re.compile(r"(?<=forms/)[^/]+(?=\.)|(?<=figures/)[^/]+(?=\.)|\d+")
TRUSTED = RemeasureOptions(trust_logged=True, device="cpu")  # every file is looked at all the same


@dataclass
class Tally:
    """Of one kind of file: flips, undetected flips, and flips that ended without a message of the package."""

    tried: int = 0
    lost: int = 0
    crashed: int = 0


def prepare(judged: Judged) -> dict[str, list[tuple[Path, Callable[[], bool]]]]:
    """kind → its files, each with who must find a flipped bit in it: true where it was found."""
    run = judged.run()
    judged.promoted(run, "--edition", "2026-12", "--name", NAME)
    audits = {found.run_id for found in judged.tracker.search({"fa.kind": "audit"})}
    files = defaultdict(list)
    for path in sorted(judged.folder.glob("mlartifacts/**/artifacts/**/*")):
        if path.is_file():
            place, _, name = path.as_posix().rpartition("/artifacts/")
            run_id = place.rpartition("/")[2]
            kind = f"audit's {KIND.sub('*', name)}" if run_id in audits else KIND.sub("*", name)
            files[kind].append((path, verify_tells(judged, run.run_id if run_id in audits else run_id)))
            if run_id == run.run_id and name in LOADED:
                files[f"promoted {name}"].append((path, load_refuses(judged)))
    resume = ResumeFile(judged.folder, "half")
    resume.write(Trainer(tiny_task()), [])
    files["resume file"].append((resume.path, lambda: begins_again(resume)))
    return files


def verify_tells(judged: Judged, run_id: str) -> Callable[[], bool]:
    def find() -> bool:
        results = verify_runs(RunSelector(run_ids=(run_id,)), TRUSTED, judged.store)
        return any(result.integrity.state not in ("verified", "trusted") for result in results)

    return find


def load_refuses(judged: Judged) -> Callable[[], bool]:
    def find() -> bool:
        load_model(f"models:/{NAME}/1", judged.store)
        return False

    return find


def begins_again(resume: ResumeFile) -> bool:
    set_aside = resume.path.with_name(f"{resume.path.name}.damaged")
    resume.read_into(Trainer(tiny_task()))
    found = set_aside.exists()
    set_aside.unlink(missing_ok=True)
    return found


@contextmanager
def flipped(path: Path, draw: random.Random) -> Iterator[None]:
    """The file with one bit flipped, and as it was afterwards."""
    whole = path.read_bytes()
    data, bit = bytearray(whole), draw.randrange(8 * len(whole))
    data[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(whole)


def flip(files: dict[str, list[tuple[Path, Callable[[], bool]]]], flips: int, seed: int) -> dict[str, Tally]:
    """So many flips, spread over all kinds, at least one each."""
    draw, tallies = random.Random(seed), defaultdict(Tally)
    kinds = sorted(files)
    for place in range(max(flips, len(kinds))):
        kind = kinds[place % len(kinds)]
        path, find = draw.choice([entry for entry in files[kind] if entry[0].stat().st_size])
        tally = tallies[kind]
        tally.tried += 1
        with flipped(path, draw):
            try:
                with suppress(RegistryError):  # found, in a sentence
                    tally.lost += not find()
            except Exception as error:
                tally.crashed += 1
                print(f"{kind}: {type(error).__name__}: {error}")
    return tallies


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--flips", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = asked.parse_args()
    logging.disable()  # a damaged file is reported each time
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        judged_study(Path(folder))
        tallies = flip(prepare(Judged(Path(folder))), options.flips, options.seed)
    for kind, tally in sorted(tallies.items()):
        print(f"{kind}: tried {tally.tried}, not found {tally.lost}, crashed {tally.crashed}")
    whole = [sum(getattr(tally, name) for tally in tallies.values()) for name in ("tried", "lost", "crashed")]
    print("flipped bits, {} kinds: tried {}, not found {}, crashed {}".format(len(tallies), *whole))
    raise SystemExit(bool(whole[1] or whole[2]))


if __name__ == "__main__":
    main()
