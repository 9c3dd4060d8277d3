"""Bundles: an audit with its runs in one file, in which every change is found and named."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import fa_registry
from fa_registry.audits import second_judgement
from fa_registry.bundles import archive, exchange
from fa_registry.bundles.archive import MANIFEST, SIGNATURE, TIME
from fa_registry.bundles.contents import CRATE
from fa_registry.errors import IntegrityError, InvalidFields, UsageError
from fa_registry.records import PROOF_LEVELS, Integrity
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import call, leave_out_figures
from tests.helpers.pictures import blank_pictures
from tests.helpers.stores import copy_store, made_once, model_entries, working_in


@pytest.fixture(scope="session")
def bundled_store(tmp_path_factory, tiny_store) -> Path:
    """The tiny study audited, with its bundles: whole and light."""

    def make(folder: Path) -> None:
        copy_store(tiny_store, folder)
        with working_in(folder), blank_pictures() as patch:
            leave_out_figures(patch)
            result = call("audit", "--study", "tiny", "--device", "cpu", "--exit-zero", "--trust-logged")
            assert result.exit_code == 0, result.output
            fa_registry.bundle("tiny")
            fa_registry.bundle("tiny", "light.fa.zip", light=True)

    return made_once(tmp_path_factory, "bundled", make)


@pytest.fixture
def bundled(bundled_store, workplace):
    """An empty folder with the two bundles and no store at all."""
    (workplace / "mlflow.db").unlink()
    for name in ("tiny.fa.zip", "light.fa.zip"):
        shutil.copy(bundled_store / name, workplace)
    return workplace


def states(path, **options):
    return {found.name: found.integrity.state for found in fa_registry.verify(path, **options)}


def rewritten(path: Path, out: Path, change) -> Path:
    """The bundle with its entries as `change` makes them of (name, bytes); the digest in the comment as it was."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(out, "w") as target:
        for entry in source.infolist():
            for name, data in change(entry.filename, source.read(entry)):
                made = zipfile.ZipInfo(name, TIME)
                made.create_system, made.external_attr = 3, 0o100644 << 16
                target.writestr(made, data)
        target.comment = source.comment
    return out


def test_it_proves_itself_in_an_empty_folder(bundled):
    found = fa_registry.verify("tiny.fa.zip")
    assert {outcome.integrity.state for outcome in found} == {"verified"}, [outcome.integrity for outcome in found]
    assert len(found) == 3 + 4 and not (bundled / "mlflow.db").exists()
    assert [outcome.proof for outcome in found] == [""] * 3 + [
        "replayed"
    ] * 4  # by this check, and not by the author's audit
    assert call("verify", "tiny.fa.zip").exit_code == 0


def test_a_quick_check_recomputes_nothing_and_still_finds_a_changed_verdict(bundled, monkeypatch):
    monkeypatch.setattr(exchange, "remeasure_all", None)  # calling it is an error
    found = fa_registry.verify("tiny.fa.zip", quick=True)
    assert [outcome.integrity.state for outcome in found] == ["verified"] * 3 + ["trusted"] * 4
    assert {outcome.proof for outcome in found} == {""}
    assert call("verify", "tiny.fa.zip", "--quick").exit_code == 0
    monkeypatch.setattr(exchange, "check_verdicts", lambda *_: Integrity("mismatch", ("another verdict",)))
    assert call("verify", "tiny.fa.zip", "--quick").exit_code == 3
    refused = call("verify", "--study", "digits", "--quick")
    assert refused.exit_code == 2 and "--quick" in refused.stderr


def test_the_same_store_gives_the_same_bytes(bundled_store, workplace):
    copy_store(bundled_store, workplace)
    again = fa_registry.bundle("tiny", "again.fa.zip")
    assert Path("again.fa.zip").read_bytes() == (bundled_store / "tiny.fa.zip").read_bytes()
    assert again.runs == 4 and not again.signed


def test_a_light_one_has_no_tensors_and_says_what_it_does_not_prove(bundled):
    with zipfile.ZipFile("light.fa.zip") as light:
        assert not [name for name in light.namelist() if name.endswith(".safetensors")]
    found = states("light.fa.zip")
    assert found["the pages"] == found["the verdicts"] == "verified"
    assert sorted(found.values()).count("trusted") == 4 and call("verify", "light.fa.zip").exit_code == 3
    assert {outcome.proof for outcome in fa_registry.verify("light.fa.zip")} == {""}
    with pytest.raises(UsageError, match="--light"):
        fa_registry.import_bundle("light.fa.zip")


@pytest.mark.long
def test_every_flipped_byte_is_found(bundled):
    whole, flipped = Path("light.fa.zip").read_bytes(), Path("flipped.fa.zip")
    draw = random.Random(0)
    ends = [*range(0, 60), *range(len(whole) - 200, len(whole))]  # the first header, the list of files, the digest
    for at in [*draw.sample(ends, 40), *(draw.randrange(len(whole)) for _ in range(60))]:
        flipped.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
        with pytest.raises(IntegrityError, match=r"flipped\.fa\.zip"):
            archive.unpack(flipped, bundled / "out")
        shutil.rmtree(bundled / "out", ignore_errors=True)


@pytest.mark.parametrize("change", [lambda data: data + b"1", lambda data: data[::-1]], ids=["longer", "same size"])
def test_a_changed_file_is_named(bundled, change):
    name = "audit/audit.csv"
    rewritten(
        Path("light.fa.zip"),
        Path("changed.fa.zip"),
        lambda entry, data: [(entry, change(data) if entry == name else data)],
    )
    with pytest.raises(IntegrityError, match=name):
        fa_registry.verify("changed.fa.zip")


def with_entry(extra: str):
    return lambda name, data: [(name, data), *[(extra, b"")] * (name == CRATE)]


def without_entry(gone: str):
    return lambda name, data: [] if name == gone else [(name, data)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        *((with_entry(name), "outside the bundle") for name in ("../out.txt", "/etc/out", "a\\b")),
        (with_entry("Runs.JSON"), "2 times"),
        (with_entry("extra.txt"), "extra.txt"),
        *((without_entry(name), name) for name in (CRATE, MANIFEST)),
        (lambda name, data: [(name, b"{}" if name == MANIFEST else data)], MANIFEST),
    ],
)
def test_what_no_bundle_is_is_refused_before_anything_is_unpacked(bundled, change, named):
    made = rewritten(Path("light.fa.zip"), Path("made.fa.zip"), change)
    with pytest.raises(IntegrityError, match=named):
        archive.unpack(made, bundled / "out")
    assert not list(bundled.rglob("out.txt")) and not (bundled / "out").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "a bundle of another program"),
        ("light", "no"),
        ("sizes", {"audit/audit.csv": -1}),
        ("files", {"audit/audit.csv": "1"}),
        ("made_of", "paper"),
    ],
)
def test_a_wrong_field_of_a_recorded_manifest_is_named(bundled, field, value):
    def changed(name, data):
        return [(name, json.dumps({**json.loads(data), field: value}).encode() if name == MANIFEST else data)]

    out = rewritten(Path("light.fa.zip"), Path("changed.fa.zip"), changed)
    with zipfile.ZipFile(out, "a") as target:
        digest = hashlib.sha256(target.read(MANIFEST)).hexdigest()
        target.comment = f"manifest sha256 {digest}".encode()
    with pytest.raises(IntegrityError, match=rf"manifest\.json: 1 problem\n  - {field}"):
        archive.unpack(out, bundled / "out")


def test_a_bomb_is_not_unpacked(bundled):
    with zipfile.ZipFile("bomb.fa.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr(MANIFEST, b"0" * 10_000_000)
    with pytest.raises(IntegrityError):
        archive.unpack(Path("bomb.fa.zip"), bundled / "out")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no zip at all", b"PK\x05\x06" + bytes(18), None])
def test_what_is_no_zip_is_a_sentence(bundled, data):
    whole = Path("light.fa.zip").read_bytes()
    Path("none.fa.zip").write_bytes(whole[: len(whole) // 2] if data is None else data)
    result = call("verify", "none.fa.zip")
    assert result.exit_code == 3 and "none.fa.zip" in result.stderr and "Traceback" not in result.output


@pytest.fixture
def keys(bundled):
    """Two pairs of Ed25519 keys as openssl makes them."""
    for name in ("author", "other"):
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", f"{name}.pem"], check=True)
        subprocess.run(["openssl", "pkey", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.pub"], check=True)


def test_a_signature_says_who_and_no_one_else_can_have_made_it(bundled_store, bundled, keys):
    copy_store(bundled_store, bundled)
    assert fa_registry.bundle("tiny", "signed.fa.zip", light=True, sign="author.pem").signed
    unchecked, checked = (fa_registry.verify("signed.fa.zip", key=key)[0].integrity for key in ("", "author.pub"))
    assert unchecked.state == checked.state == "verified" and unchecked.details != checked.details
    for path, key in (("signed.fa.zip", "other.pub"), ("light.fa.zip", "author.pub")):
        with pytest.raises(IntegrityError):
            fa_registry.verify(path, key=key)
    with zipfile.ZipFile("signed.fa.zip") as source:
        forged = json.loads(source.read(SIGNATURE)) | {"signature": "AAAA"}
    rewritten(
        Path("signed.fa.zip"),
        Path("forged.fa.zip"),
        lambda name, data: [(name, json.dumps(forged).encode() if name == SIGNATURE else data)],
    )
    with pytest.raises(IntegrityError, match="signature"):
        fa_registry.verify("forged.fa.zip")


@pytest.mark.parametrize(
    ("key", "text"), [("nowhere.pem", "openssl genpkey"), ("author.pub", "expected a private Ed25519 key")]
)
def test_a_key_that_is_none_is_a_sentence(bundled_store, bundled, keys, key, text):
    copy_store(bundled_store, bundled)
    with pytest.raises(UsageError, match=text):
        fa_registry.bundle("tiny", "signed.fa.zip", sign=key)
    assert not Path("signed.fa.zip").exists()


@pytest.mark.long
def test_its_runs_go_into_another_store_once_and_are_verified_there(bundled, empty_store, measured_each_time):
    shutil.copy(empty_store, bundled / "mlflow.db")
    put = fa_registry.import_bundle("tiny.fa.zip", experiment="theirs")
    assert len(put.runs) == 4 and not put.present
    again = fa_registry.import_bundle("tiny.fa.zip", experiment="theirs")
    assert not again.runs and again.present == put.runs
    tracker = MlflowTracker()
    runs = tracker.search({schema.TAG_KIND: "run"})
    assert {run.state for run in runs} == {"FINISHED"} and len(runs) == 4
    assert all(len(run.tags[schema.TAG_IMPORTED]) == 64 for run in runs)
    assert {run.tags[schema.TAG_NOTE] for run in runs} == {schema.NOT_AUDITED}
    entries = {model.source_run_id: model.metrics for model in model_entries(tracker.with_experiment("theirs"))}
    assert entries.keys() == {run.run_id for run in runs}
    for run in runs:
        assert len(entries[run.run_id]) >= 4
        assert all(run.metrics[metric.key] == metric.value for metric in entries[run.run_id])
    (theirs, ours), *_ = put.runs.items()
    for typed in (theirs, theirs[:8], ours):
        shown = call("show", typed).stdout.splitlines()
        assert f"run {ours} " in shown[-3] and shown[-1].endswith(" (in the bundle)"), shown[-3:]
    levels = {run.tags[schema.TAG_IMPORTED_PROOF] for run in runs}
    assert levels <= set(PROOF_LEVELS) and not any(schema.is_verdict_tag(name) for run in runs for name in run.tags)
    proofs = {run["proof"] for run in json.loads(call("list", "runs", "--json").stdout)}
    assert proofs == {f"{level} (in the bundle)" for level in levels}
    methods = {run.run_id: run.tags[schema.TAG_METHOD] for run in runs}
    (first, first_here), (second, second_here) = list(put.runs.items())[:2]
    compared = call("compare", first, second[:8], "--trust-logged")
    assert compared.exit_code in (0, 3) and methods[first_here] in compared.output, compared.output
    assert methods[second_here] in compared.output
    assert not any(name.startswith(schema.TAG_VERDICT) for run in runs for name in run.tags)  # no audit here wrote one
    found = fa_registry.verify(run_ids=list(put.runs.values()), jobs=1, device="cpu")
    assert {outcome.integrity.state for outcome in found} == {"verified"}


def test_a_broken_import_leaves_nothing_at_work_and_goes_on(bundled, empty_store, monkeypatch):
    shutil.copy(empty_store, bundled / "mlflow.db")
    genuine, calls = MlflowTracker.upload, []

    def breaks(self, run_id, folder):
        calls.append(run_id)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        genuine(self, run_id, folder)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(MlflowTracker, "upload", breaks)
        fa_registry.import_bundle("tiny.fa.zip")
    assert "RUNNING" not in {run.state for run in MlflowTracker().search({})}
    put = fa_registry.import_bundle("tiny.fa.zip")
    assert len(put.runs) == 3 and len(put.present) == 1


def test_the_crate_is_one_by_its_specification(bundled):
    """RO-Crate 1.1: the descriptor, the root with its four fields, every file an entity, every reference one that is there."""
    with zipfile.ZipFile("tiny.fa.zip") as source:
        crate, names = json.loads(source.read(CRATE)), set(source.namelist())
    graph = {entity["@id"]: entity for entity in crate["@graph"]}
    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context" and len(graph) == len(crate["@graph"])
    root = graph["./"]
    assert graph[CRATE]["about"] == {"@id": "./"} and graph[CRATE]["conformsTo"]["@id"].startswith(
        "https://w3id.org/ro/crate/1.1"
    )
    assert all(root[field] for field in ("name", "description", "datePublished", "conformsTo"))
    assert "license" not in root  # only its author may state one
    assert {part["@id"] for part in root["hasPart"]} == names - {MANIFEST, CRATE}
    assert all(graph[name]["@type"] == "File" for name in names - {MANIFEST, CRATE})
    actions = [entity for entity in graph.values() if entity["@type"] == "CreateAction"]
    assert len(actions) == 5
    for action in actions:
        assert action["instrument"]["@id"] in graph and all(result["@id"] in graph for result in action["result"])


def test_a_licence_is_what_its_author_states(bundled_store, workplace):
    copy_store(bundled_store, workplace)
    fa_registry.bundle("tiny", "licensed.fa.zip", light=True, licence="CC-BY-4.0")
    from rocrate.rocrate import ROCrate

    assert ROCrate("licensed.fa.zip").license["name"] == "CC-BY-4.0"


@pytest.mark.parametrize(
    ("arguments", "text"), [({"study": "unknown"}, "no complete audit"), ({"study": "tiny", "licence": "a b"}, "SPDX")]
)
def test_what_cannot_be_bundled_is_a_sentence(bundled_store, workplace, arguments, text):
    copy_store(bundled_store, workplace)
    with pytest.raises((UsageError, InvalidFields), match=text):
        fa_registry.bundle(**arguments)


def test_only_a_bundle_is_replaced_and_no_folder_is_made(bundled_store, workplace):
    copy_store(bundled_store, workplace)
    (workplace / "folder").mkdir()
    os.mkfifo("pipe")
    with zipfile.ZipFile("other.zip", "w") as other:
        other.writestr(MANIFEST, b"{}")
    Path("study.toml").write_text("mine", encoding="utf-8")
    Path("link.toml").symlink_to("study.toml")
    before = sorted(workplace.rglob("*"))
    taken = ("study.toml", "other.zip", "pipe", "link.toml", "folder", ".", "no/such/a.zip", "study.toml/a.zip")
    for out in (*taken, "x" * 300, "/proc/a.zip", "a\0.zip"):
        with pytest.raises(UsageError):
            fa_registry.bundle("tiny", out, light=True)
        assert sorted(workplace.rglob("*")) == before and Path("study.toml").read_text() == "mine"


def test_a_changed_run_is_not_bundled(bundled_store, workplace):
    copy_store(bundled_store, workplace)
    tracker = MlflowTracker()
    run = tracker.search({schema.TAG_KIND: "run"})[0]
    path = tracker.artifact(run.run_id, schema.SERIES)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match=schema.SERIES):
        fa_registry.bundle("tiny", "new.fa.zip")
    assert not Path("new.fa.zip").exists()


def test_verdicts_that_the_edition_does_not_give_are_a_mismatch(bundled, monkeypatch):
    """An author who edits a verdict and records all digests again: the edition judges the figures again."""
    genuine = second_judgement.judge_all

    def other(records, *given):
        first, *rest = genuine(records, *given)
        return (replace(first, verdict=replace(first.verdict, label="PASS!")), *rest)

    monkeypatch.setattr(second_judgement, "judge_all", other)
    assert states("light.fa.zip")["the verdicts"] == "mismatch"


def test_a_link_to_an_older_bundle_remains_a_link(bundled_store, workplace):
    copy_store(bundled_store, workplace)
    Path("newest.fa.zip").symlink_to("light.fa.zip")
    Path("light.fa.zip").write_bytes(Path("tiny.fa.zip").read_bytes())
    fa_registry.bundle("tiny", "newest.fa.zip", light=True)
    assert Path("newest.fa.zip").is_symlink()
    assert Path("light.fa.zip").stat().st_size < Path("tiny.fa.zip").stat().st_size


def test_a_bundle_of_long_and_many_names_is_reported_in_a_short_message(bundled):
    def more(name, data):
        return [(name, data), *((f"{'x' * 5_000}/{place}", b"") for place in range(100) if name == CRATE)]

    made = rewritten(Path("light.fa.zip"), Path("made.fa.zip"), more)
    with pytest.raises(IntegrityError, match="90 more") as caught:
        archive.unpack(made, bundled / "out")
    assert len(str(caught.value)) < 1_200
