"""track: a user-supplied loop is a run whose metrics equal the package's to the bit, and the loop does not notice."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy
import pytest
import torch
from torch import nn

import fa_registry
from fa_registry import diagnostics
from fa_registry.datasets.base import tensors_digest
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.external import track
from fa_registry.records import Reading
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record, table_history
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.measuring import measure
from fa_registry.training.probe_context import credits_under
from fa_registry.training.trainer import Trainer
from fa_registry.training.user_model import NOT_GIVEN
from fa_registry.training.user_run_setup import EpochJournal
from tests.commands.conftest import call
from tests.helpers.nets import hooks_of
from tests.helpers.tiny_tasks import tiny_task

WIDTH, CLASSES = 8, 3


class Residual(nn.Module):
    """Two residual blocks by the published contract."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2))
        self.out_head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out_head(h)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Residual()


@pytest.fixture
def batch():
    return torch.randn(16, 5, generator=torch.Generator().manual_seed(1)), torch.arange(16) % CLASSES


def train_one_epoch(model, batch, optimizer=None):
    optimizer = optimizer or torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=0.1)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


def dfa(matrices):
    def credit(model, x, y):
        error = model(x).softmax(1) - nn.functional.one_hot(y, CLASSES)
        return [None, *(error @ matrix.T for matrix in matrices)]

    return credit


def record_of(run):
    tracker = MlflowTracker()
    return read_record(tracker, tracker.get(run.run_id))


def test_the_figures_are_those_of_the_same_training_by_our_loop(workplace):
    """A built-in task trained in the context, epoch by epoch: norms, growth, gain and Γ come out bit-equal to `measure`."""
    task, ours = tiny_task(), []
    trainer = Trainer(task)

    def credit(network, x, y):
        return credits_under(task, task.feedback, diagnostics.run_forward_backward(network, x, y))

    with fa_registry.track(task.network, eval=task.eval_batch, method="mine", seed=7, credit=credit) as run:
        ours.append(measure(task))
        for _ in range(2):
            trainer.run_epoch()
            ours.append(measure(task))
            run.epoch(test_accuracy=ours[-1].scalars["accuracy"].value)
    record = record_of(run)
    for name in ("h_L", "g_L", "growth_max", "growth_init_max", "gamma_deep_mean", "accuracy"):
        logged = list(record.trajectory[name])
        assert logged[1:] == [row.scalars[name] for row in ours[1:]], name
    for name in ("h_norm", "g_norm", "growth", "growth_init", "gain", "gamma", "fidelity"):
        assert record.measurements.sites[name] == ours[-1].sites[name], name
    assert record.status == "complete" and record.spec.epochs == 2


def test_it_is_written_as_our_runs_are(workplace, model, batch):
    matrices = [torch.randn(WIDTH, CLASSES) for _ in range(2)]
    feedback = {f"B_{site}": matrix for site, matrix in enumerate(matrices, 1)}
    with fa_registry.track(
        model, eval=batch, method="mine", seed=7, credit=dfa(matrices), feedback=feedback, epochs=3, checkpoint_every=1
    ) as run:
        for _ in range(3):
            train_one_epoch(model, batch)
            run.epoch(test_accuracy=0.5, loss_train=1.25)
    tracker, record = MlflowTracker(), record_of(run)
    assert load_tensors(tracker.artifact(run.run_id, schema.FEEDBACK)).keys() == feedback.keys()
    last = load_tensors(tracker.artifact(run.run_id, schema.FINAL))
    assert all(torch.equal(tensor, last[name]) for name, tensor in model.state_dict().items())
    assert {schema.epoch_checkpoint(1), schema.epoch_checkpoint(2), schema.INITIAL} <= record.digests.keys()
    assert record.provenance["own_loop"]["credit"].endswith("dfa.<locals>.credit")
    assert record.measurements.sites["gamma"][0].reason == NOT_GIVEN
    assert record.measurements.sites["gamma"][1].value is not None
    assert [reading.value for reading in record.trajectory["loss_train"]][1:] == [1.25] * 3
    stored = tracker.get(run.run_id)
    assert stored.tags[schema.TAG_STATUS] == "complete" and stored.params["cfg/epochs"] == "3"


class Noisy(Residual):
    """A model whose creation and forward pass draw from the global generators of torch, NumPy and Python."""

    def __init__(self):
        super().__init__()
        self.shift = float(numpy.random.rand()) + random.random()

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.1) + self.shift * random.random())


def fresh_dfa(model, x, y, generator):
    return dfa(torch.randn(2, WIDTH, CLASSES, generator=generator))(model, x, y)


@pytest.mark.parametrize(
    "options",
    [{}, {"factory": "tests.commands.test_track:Noisy"}, {"fresh": fresh_dfa}],
    ids=["plain", "factory", "fresh"],
)
@pytest.mark.filterwarnings("ignore:.*two forward passes:fa_registry.errors.EvidenceWarning")
def test_the_loop_does_not_notice(workplace, batch, options):
    """Weights, gradients, modes and every draw are those of the same loop without us."""

    def loop(epoch_ended):
        torch.manual_seed(3)
        numpy.random.seed(3)
        random.seed(3)
        trained = Noisy()
        trained.blocks[0].eval()
        optimizer = torch.optim.Adam(trained.parameters())
        with (
            fa_registry.track(
                trained, eval=batch, method="mine", seed=1, credit=dfa([torch.eye(WIDTH)[:, :CLASSES]] * 2), **options
            )
            if epoch_ended
            else nothing() as run
        ):
            for _ in range(2):
                noisy = batch[0] + torch.randn(16, 5), batch[1]
                train_one_epoch(trained, noisy, optimizer)
                if epoch_ended:
                    run.epoch()
        hooks = hooks_of(trained)
        modes = [module.training for module in trained.modules()]
        return (
            [*trained.state_dict().values(), *(weight.grad for weight in trained.parameters()), torch.rand(3)],
            [random.random(), numpy.random.rand()],
            modes,
            hooks,
        )

    (with_us, *state), (without, *other) = loop(True), loop(False)
    assert all(map(torch.equal, with_us, without)) and state == other and sum(state[-1]) == 0


@pytest.mark.filterwarnings("ignore:.*two forward passes:fa_registry.errors.EvidenceWarning")
def test_a_control_has_the_draws_of_the_loop_without_a_control(workplace, batch):
    model = Noisy()
    torch.manual_seed(3)
    with fa_registry.track(
        model, eval=batch, method="mine", seed=1, sites=["embed", "blocks.0", "blocks.1"], control=True
    ) as run:
        drawn = torch.rand(3)
        run.epoch()
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))


SITES = ["embed", "blocks.0", "blocks.1"]


@pytest.mark.parametrize(
    "call_it",
    [
        lambda model, batch: fa_registry.alignment(model, batch, dfa([torch.eye(WIDTH)[:, :CLASSES]] * 2), SITES[1:]),
        lambda model, batch: fa_registry.diagnose(model, [batch]),
        lambda model, batch: fa_registry.frozen_control(model, sites=SITES, x=batch[0]).__enter__(),
    ],
    ids=["alignment", "diagnose", "frozen_control"],
)
@pytest.mark.filterwarnings("ignore:.*two forward passes:fa_registry.errors.EvidenceWarning")
def test_other_functions_change_no_generator_either(batch, call_it):
    model = Noisy()
    for draw in (lambda: torch.rand(3).tolist(), random.random):
        torch.manual_seed(3)
        random.seed(3)
        call_it(model, batch)
        drawn = draw()
        torch.manual_seed(3)
        random.seed(3)
        assert drawn == draw()


class nothing:
    def __enter__(self): ...

    def __exit__(self, *error): ...


@pytest.mark.long
def test_an_audit_judges_it_and_says_what_it_takes_on_trust(workplace, batch):
    for control in (False, True):
        torch.manual_seed(0)
        model = Residual()
        context = fa_registry.frozen_control(model) if control else nothing()
        with context, fa_registry.track(model, eval=batch, method="mine", seed=7, dataset="mine", epochs=2) as run:
            for _ in range(2):
                train_one_epoch(model, batch)
                run.epoch(test_accuracy=0.4 if control else 0.6)
    result = call("audit", "--experiment", "fa_registry", "--json", "--exit-zero")
    assert result.exit_code == 0, result.output
    judged = {entry["record"]["spec"]["control"]: entry for entry in json.loads(result.stdout)["report"]["runs"]}
    assert judged["none"]["frozen_run_id"] == judged["frozen"]["record"]["run_id"]
    assert judged["none"]["verdict"]["outcome"] in ("warn", "incomplete")
    assert {run["verdict"]["proof"] for run in judged.values()} == {"stated"}
    assert judged["none"]["record"]["integrity"]["state"] == "unverifiable"
    assert [one["outcome"] for one in judged["none"]["findings"] if one["rule"] == "metrics"] == ["warn"]


def test_a_frozen_block_that_was_trained_all_the_same_is_no_control(model, batch):
    refused = pytest.raises(UsageError, match=r"blocks\.1")
    with refused, fa_registry.frozen_control(model), torch.no_grad():
        model.blocks[1][0].weight += 1
    assert all(weight.requires_grad for weight in model.parameters())


def test_all_that_is_wrong_is_named_at_once_and_nothing_is_written(workplace, model, batch):
    with pytest.raises(InvalidFields) as refused:
        fa_registry.track(model, sites=["nowhere"], eval=(batch[0], batch[1].float()), seed=-1, credit=3, epochs="all")
    named = {problem.partition(":")[0] for problem in refused.value.problems}
    assert {"sites", "eval[1]", "method", "seed", "credit", "epochs"} <= named
    assert MlflowTracker().search({schema.TAG_KIND: "run"}) == []


@pytest.mark.parametrize("credit", [lambda model, x, y: [torch.zeros(16, 2)] * 3, lambda model, x, y: torch.zeros(3)])
def test_a_credit_that_is_none_is_refused_before_the_first_epoch(workplace, model, batch, credit):
    with (
        pytest.raises(InvalidFields, match="credit"),
        fa_registry.track(model, eval=batch, method="mine", credit=credit),
    ):
        raise AssertionError


def test_a_credit_that_is_not_finite_has_its_reason_and_no_figure(workplace, model, batch):
    with fa_registry.track(
        model, eval=batch, method="mine", credit=lambda model, x, y: [torch.full((16, WIDTH), torch.nan)] * 3
    ) as run:
        run.epoch()
    assert all(reading.value is None for reading in record_of(run).measurements.sites["gamma"])


def test_a_loop_that_never_calls_epoch_is_no_run(workplace, model, batch):
    with (
        pytest.raises(UsageError, match=r"run\.epoch"),
        fa_registry.track(model, eval=batch, method="mine"),
    ):
        pass
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run"})
    assert run.state == "FAILED" and run.tags[schema.TAG_STATUS] == "failed"


def test_a_loop_that_broke_goes_on_with_all_its_epochs(workplace, model, batch):
    def loop(until, resume):
        with fa_registry.track(model, eval=batch, method="mine", seed=1, epochs=4, resume=resume) as run:
            begun = run.done
            while run.done < 4:
                if run.done == until:
                    raise ZeroDivisionError
                train_one_epoch(model, batch)
                run.epoch(test_accuracy=run.done / 10)
        return run, begun

    with pytest.raises(ZeroDivisionError):
        loop(2, False)
    run, begun = loop(4, True)
    record = record_of(run)
    assert begun == 2 and record.provenance["resumed_from"] == 2
    assert [reading.value for reading in record.trajectory["accuracy"]] == [None, 0.0, 0.1, 0.2, 0.3]
    lengths = [reading.value for reading in record.trajectory["h_L"]]  # of which epoch 0 was measured before it broke
    assert record.measurements.sites["growth_init"][-1].value == lengths[-1] / lengths[0] != 1.0
    assert [stored.state for stored in MlflowTracker().search({schema.TAG_KIND: "run"})] == ["FINISHED", "FAILED"]


def test_rows_that_were_cut_or_flipped_are_not_believed(workplace, model, batch):
    with pytest.raises(ZeroDivisionError), fa_registry.track(model, eval=batch, method="mine", seed=1) as run:
        run.epoch()
        run.epoch()
        raise ZeroDivisionError
    (path,) = (workplace / ".fa_registry" / "own_loops").iterdir()
    rows, whole = EpochJournal(path.parent, record_spec(path), True, tensors_digest(*batch)), path.read_bytes()
    path.write_bytes(whole[:-40])
    assert [row.epoch for row in rows.read()] == [0, 1]
    path.write_bytes(whole.replace(b'"epoch":0', b'"epoch":7', 1))
    assert rows.read() == []


def record_spec(path):
    """Whose rows a file holds: its name is the specification's identity."""
    return type("Named", (), {"identity": path.stem})()


def test_values_may_be_tensors_of_one_number(workplace, model, batch):
    with fa_registry.track(model, eval=batch, method="mine") as run:
        with pytest.raises(InvalidFields) as refused:
            run.epoch(test_accuracy=torch.ones(2), loss_trian=1.0)
        of_value, of_name = refused.value.problems
        assert of_value.startswith("test_accuracy: ") and "'loss_trian'" in of_name
        found = run.epoch(test_accuracy=torch.tensor(0.5), loss_train=torch.tensor([1.25], requires_grad=True))
    assert (found.scalars["accuracy"].value, found.scalars["loss_train"].value) == (0.5, 1.25)


def test_weights_that_two_layers_share_are_kept(workplace, batch):
    model = Residual()
    model.blocks[1][0].weight = model.blocks[0][0].weight
    with fa_registry.track(model, eval=batch, method="mine") as run:
        run.epoch()
    last = load_tensors(MlflowTracker().artifact(run.run_id, schema.FINAL))
    assert torch.equal(last["blocks.0.0.weight"], last["blocks.1.0.weight"])


FACTORY = "tests.commands.test_track:Residual"


def tracked_with_factory(model, batch):
    with fa_registry.track(
        model, eval=batch, method="mine", seed=7, factory=FACTORY, credit=dfa([torch.ones(8, 3)] * 2)
    ) as run:
        train_one_epoch(model, batch)
        run.epoch(test_accuracy=0.6)
    return run


def integrity(*more):
    (outcome,) = json.loads(call("verify", "--json", *more).stdout)
    return outcome["integrity"]


@pytest.mark.long
def test_a_user_who_vouches_for_the_model_recomputes_it(measured_each_time, workplace, model, batch):
    run = tracked_with_factory(model, batch)
    for other in ((), ("--factory", "json:loads")):  # which is not imported: the run names another
        assert integrity("--run", run.run_id, *other)["state"] == "unverifiable"
    again = integrity("--run", run.run_id, "--factory", FACTORY)
    assert again["state"] == "verified", again
    assert {check["subject"]: check["outcome"] for check in again["checks"]}["metrics"] == "not possible"
    result = call("audit", "--run", run.run_id, "--factory", FACTORY, "--json", "--exit-zero")
    (judged,) = json.loads(result.stdout)["report"]["runs"]
    states = [finding["state"] for finding in judged["findings"] if finding["rule"] == "metrics"]
    assert states == ["PARTLY RECOMPUTED"] and judged["verdict"]["outcome"] != "pass"
    assert judged["verdict"]["proof"] == "stated"  # its metrics are recomputed, and its training is not replayed


@pytest.mark.parametrize("factory", ["nowhere:build", ":x"])
def test_an_audit_refuses_a_factory_that_cannot_be_imported_before_it_recomputes(workplace, model, batch, factory):
    run = tracked_with_factory(model, batch)
    refused = call("audit", "--run", run.run_id, "--factory", factory)
    module = factory.partition(":")[0]
    assert refused.exit_code == 2 and f"module {module!r}" in refused.stderr


def test_figures_that_are_not_the_models_are_a_mismatch(workplace, model, batch, monkeypatch):
    """Recorded as they are by an author who edited the numbers: the weights and the batch show it."""
    genuine = track.measured

    def flattered(*given, **options):
        found, reference = genuine(*given, **options)
        line = tuple(Reading(0.5 * reading.value) for reading in found.sites["h_norm"])
        return dataclasses.replace(found, sites={**found.sites, "h_norm": line}), reference

    monkeypatch.setattr(track, "measured", flattered)
    run = tracked_with_factory(model, batch)
    again = integrity("--run", run.run_id, "--factory", FACTORY)
    assert again["state"] == "mismatch" and {each["quantity"] for each in again["differences"]} == {"h_norm"}


@pytest.mark.parametrize(
    "factory", ["nowhere:build", "json:dumps", "torch.nn:Identity", "tests.commands.test_track:WIDTH"]
)
def test_a_factory_of_no_such_model_is_refused_before_the_first_epoch(workplace, model, batch, factory):
    with pytest.raises(InvalidFields, match="factory"):
        fa_registry.track(model, eval=batch, method="mine", factory=factory)


def test_a_compiled_model_is_measured_without_its_wrapper(workplace, model, batch):
    compiled = torch.compile(model, backend="eager")
    with fa_registry.track(compiled, eval=batch, method="mine") as run:
        run.epoch()
    record = record_of(run)
    assert record.provenance["own_loop"]["unwrapped from"] == "OptimizedModule"
    assert record.spec.architecture == "Residual"


def test_a_method_of_ours_by_name_is_not_taken_for_ours(workplace, model, batch):
    """A loop that calls itself bp is still no statement that the method is bp."""
    with fa_registry.track(model, eval=batch, method="bp", seed=7) as run:
        run.epoch(test_accuracy=0.9)
    result = call("audit", "--run", run.run_id, "--json", "--exit-zero")
    (judged,) = json.loads(result.stdout)["report"]["runs"]
    assert judged["record"]["conformance"]["state"] == "unchecked" and judged["verdict"]["outcome"] != "pass"


def test_a_model_whose_input_has_the_shape_of_its_states_needs_no_readout(workplace):
    class Square(Residual):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Linear(WIDTH, WIDTH), self.out_head
            del self.out_head  # neither out_ln nor out_head: the readout is the module that runs after the last block

        def forward(self, x):
            h = self.embed(x)
            for block in self.blocks:
                h = h + block(h)
            return self.out(h)

    batch = torch.randn(16, WIDTH), torch.arange(16) % CLASSES
    with fa_registry.track(Square(), eval=batch, method="mine", seed=7) as run:
        run.epoch()
    assert run.done == 1


def test_no_draw_of_the_null_is_the_feedback_of_a_user_who_seeds_with_a_small_number(workplace, model, batch):
    drawn = []

    def fresh(model, x, y, generator):
        drawn.append(torch.randn(2, WIDTH, CLASSES, generator=generator))
        return dfa(drawn[-1])(model, x, y)

    credit = dfa(torch.eye(WIDTH, CLASSES).expand(2, -1, -1))
    with fa_registry.track(model, eval=batch, method="mine", seed=7, credit=credit, fresh=fresh) as run:
        run.epoch()
    trained = [torch.randn(2, WIDTH, CLASSES, generator=torch.Generator().manual_seed(seed)) for seed in range(1000)]
    assert len(drawn) >= 20 and not any(torch.equal(one, other) for one in drawn for other in trained)
    record = record_of(run)
    assert record.measurements.conventions["gamma_null_draws"] == 20 == len({one.numpy().tobytes() for one in drawn})
    with fa_registry.track(model, eval=batch, method="mine", seed=8, credit=credit) as run:
        run.epoch()
    assert "gamma_null_draws" not in record_of(run).measurements.conventions


@pytest.mark.parametrize("epochs", [pytest.param(0, marks=pytest.mark.long), 40])
def test_every_epoch_of_a_loop_is_logged_whether_their_number_is_given_or_not(workplace, model, batch, epochs):
    with fa_registry.track(model, eval=batch, method="mine", seed=7, epochs=epochs, factory=FACTORY) as run:
        for _ in range(40):
            train_one_epoch(model, batch)
            run.epoch(test_accuracy=0.5)
    tracker = MlflowTracker()
    for key in ("accuracy/test", "h_norm/site_02"):
        steps = sorted(point.step for point in tracker.history(run.run_id, [key]))
        assert steps == list(range(key == "accuracy/test", 41)), key
    assert table_history(tracker, tracker.get(run.run_id)).outcome == "agrees"
    assert integrity("--run", run.run_id, "--factory", FACTORY)["state"] == "verified"


def test_two_loops_at_once_are_two_runs(workplace, model, batch):
    with (
        fa_registry.track(model, eval=batch, method="one") as first,
        fa_registry.track(model, eval=batch, method="two") as second,
    ):
        first.epoch()
        second.epoch()
    assert first.run_id != second.run_id
    assert record_of(first).measurements.sites["h_norm"] == record_of(second).measurements.sites["h_norm"]


def tracked(model, batch, **options):
    with fa_registry.track(model, eval=batch, method="mine", seed=7, **options) as run:
        train_one_epoch(model, batch)
        run.epoch(test_accuracy=0.5)
    return record_of(run)


def test_the_labels_of_the_test_set_give_its_size_and_chance(workplace, model, batch):
    """Without them, D3 lacks both; a list, as torchvision's data sets have it, is enough."""
    conventions = tracked(model, batch, test_labels=[0, 1, 1, 2]).measurements.conventions
    assert (conventions["test_samples"], conventions["chance"]) == (4, 0.5)
    for dataset, labels in (("unknown", None), ("known", [0, 1, 1, 2])):
        for control in (False, True):
            tracked(Residual(), batch, control=control, dataset=dataset, test_labels=labels)
    report = fa_registry.audit(experiment="fa_registry").report
    causes = {
        run.record.spec.dataset: next(finding for finding in run.findings if finding.rule == "D3").undecided
        for run in report.runs
        if run.record.spec.control == "none"
    }
    assert causes["unknown"] == ("too few seeds", "control unproven", "test set unknown")
    assert causes["known"] == ("too few seeds", "control unproven")


@pytest.mark.parametrize(
    "labels", [[], "0123", object(), torch.zeros(4, 2, dtype=torch.int64), torch.tensor([0.5, 1.0]), [-100, 1]]
)
def test_labels_that_are_no_classes_of_a_test_set_are_refused(workplace, model, batch, labels):
    with pytest.raises(InvalidFields) as refused:
        fa_registry.track(model, eval=batch, method="mine", test_labels=labels)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == ["test_labels"]


def test_the_number_of_draws_of_the_null_is_recorded(workplace, model, batch):
    def fresh(model, x, y, generator):
        return dfa([torch.randn(WIDTH, CLASSES, generator=generator) for _ in range(2)])(model, x, y)

    record = tracked(model, batch, credit=dfa([torch.ones(WIDTH, CLASSES)] * 2), fresh=fresh, draws=3)
    assert record.measurements.conventions["gamma_null_draws"] == 3
    assert record.measurements.sites["gamma_null_p"][1].value in (0.25, 0.5, 0.75, 1)
    for draws in (1, 1001, True, 2.5):
        with pytest.raises(InvalidFields, match="draws"):
            fa_registry.track(model, eval=batch, method="mine", draws=draws)
