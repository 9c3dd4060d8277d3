"""The commands `adopt`, `promote`, `bundle` and `import`."""

from __future__ import annotations

from typing import Any

import click

from fa_registry.cli import options, shell_completion
from fa_registry.cli.options import (
    ARCHITECTURE,
    DATA_ROOT,
    DATASET,
    DEVICE,
    EXPERIMENT,
    JSON,
    MOST_THREADS,
    PENALTY,
    SEED,
    SET,
    STORE,
    examples,
)
from fa_registry.cli.tables import print_json, print_out

SPEC_FIELDS = ("method", "architecture", "dataset", "seed", "epochs", "penalty", "device")


@click.command(short_help="Create a run from a checkpoint that another program trained.")
@click.argument("weights", metavar="WEIGHTS")
@click.option(
    "--method",
    default="",
    help="Method that trained the checkpoint, see `list methods`.",
    shell_complete=shell_completion.family("methods"),
)
@ARCHITECTURE
@DATASET
@SEED
@click.option("--epochs", default="", help="Number of epochs of the training; required.")
@PENALTY
@SET
@click.option(
    "--feedback", default="", metavar="FILE", help="Feedback B_1..B_L of the training. Without this file, Γ is N/A."
)
@click.option(
    "--frozen-accuracy",
    default="",
    metavar="FRACTION",
    help="Test accuracy (0..1) of the frozen control, if the store has no control of this setting. The value is not verified, "
    "so the verdict is WARN at best.",
)
@click.option("--name", default="", help="Name of the new run in the store.")
@click.option(
    "--force", is_flag=True, help="Adopt the checkpoint again even if the store already has a run of this checkpoint."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Print the command of an audit that judges like the published code (FAIL if any rule fires). Nothing is judged now.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    default=1,
    show_default=True,
    help="Number of CPU threads for the measurements.",
)
@DEVICE
@EXPERIMENT
@DATA_ROOT
@STORE
@JSON
@examples(
    "adopt dfa.pt --method dfa --seed 42 --epochs 100 --feedback B.pt --frozen-accuracy 0.64",
    "adopt final.safetensors --method bp --seed 1 --epochs 30 --set architecture.d_hidden=512",
)
def adopt(weights: str, settings: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Create a run from a checkpoint that another program trained.

    The command measures the checkpoint. Afterwards, `audit` judges the run like any other run.

    WEIGHTS is a .safetensors file, or a .pt or .pth file that contains only tensors. In a .pt or .pth file, the tensors may also
    be in the entry state_dict, model_state_dict or model. Pickled models are not read. The tensors have the names of the
    published reference code. For resmlp: embed, blocks.N.ln|w1|w2, out_ln, out_head. For vit_mini: patch_embed, cls_token,
    pos_embed, blocks.N.attn.in_proj_weight, …. For small_resnet: stem_conv, stem_bn, blocks.N.conv1, ….

    The feedback FILE contains tensors B_01, B_02, …, a list of matrices B_1..B_L, or tensors whose names differ only in one
    number from 0 or 1 (B.0, B.1, …).
    """
    from fa_registry.workflows.adopt import run_adopt
    from fa_registry.workflows.options import StoreLocation, spec_fields

    fields = spec_fields({name: arguments.pop(name) for name in SPEC_FIELDS}, options.settings(settings))
    location = StoreLocation(*(arguments.pop(name) for name in ("store", "experiment", "data_root")))
    result = run_adopt(weights, fields, location=location, **arguments)
    if as_json:
        print_json(result)
        return
    if not result.adopted:
        print_out(
            f"run {result.run_id}: already adopted (--force adopts it again)", f"to audit the run: {result.judge}"
        )
        return
    print_out(f"run {result.run_id}: adopted, {result.status}")
    print_out("  " + " · ".join(f"{name} {value:.4g}" for name, value in result.headline.items()))
    if result.absent:
        print_out(f"  no Γ: {result.absent} (pass the feedback with --feedback FILE)")
    print_out(f"to audit the run: {result.judge}")


@click.command(short_help="Register the weights of an audited run as a model version.")
@click.argument("run", metavar="RUN")
@click.option("--name", default="", help="Name of the registered model [made from method and setting].")
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="ALIAS",
    help="Alias in addition to the alias of the verdict (pass, warn, …); repeatable.",
)
@click.option(
    "--edition",
    default="",
    help="Edition whose verdict decides whether the run is promoted [the leading edition of the newest audit].",
    shell_complete=shell_completion.editions(),
)
@click.option(
    "--override-reason",
    "despite",
    default=None,
    metavar="REASON",
    help="Reason to promote a run with verdict FAIL or INCOMPLETE; stored with the model.",
)
@click.option(
    "--author",
    default="",
    metavar="NAME",
    help="With --override-reason: name of the person who decides [your login name].",
)
@DATA_ROOT
@STORE
@JSON
@examples(
    "promote 4f1c…",
    "promote 4f1c… --alias champion",
    "promote 4f1c… --name dfa-digits --edition 2026-05",
    'promote 4f1c… --override-reason "the negative control of our tutorial"',
)
def promote(as_json: bool, **arguments: Any) -> None:
    """Register the final weights of an audited run as a model version, with the verdict.

    RUN is a run id, or the first characters of a run id. First, the metrics of the run are recomputed as in `verify`.

    The model version contains safetensors files, the specification and a model card, but no pickle and no MLflow flavour. To load
    a model version, call fa_registry.load_model("models:/NAME@alias").

    A run with verdict FAIL or INCOMPLETE is promoted only with --override-reason.
    """
    from fa_registry.workflows.options import StoreLocation
    from fa_registry.workflows.promote import run_promote

    location = StoreLocation(arguments.pop("store"), data_root=arguments.pop("data_root"))
    result = run_promote(location=location, **arguments)
    if as_json:
        print_json(result)
        return
    outcome = "promoted" if result.promoted else "already promoted with this verdict"
    print_out(f"{result.reference}: run {result.run_id} {outcome}, {result.verdict} by edition {result.edition}")
    other_verdicts = [f"{label} by {name}" for name, label in result.verdicts.items() if name != result.edition]
    if other_verdicts:
        print_out(f"  other editions: {', '.join(other_verdicts)}")
    if result.despite:
        print_out(f"  promoted despite {result.verdict}: {result.despite}")
    if result.aliases:
        print_out(f"  aliases: {', '.join(result.aliases)}")
    print_out(f'to load the model: fa_registry.load_model("{result.reference}")')


@click.command(short_help="Write a study's audit and runs into one file that can be verified.")
@click.option(
    "--study",
    required=True,
    metavar="NAME",
    help="Study whose newest audit is written.",
    shell_complete=shell_completion.studies(),
)
@click.option("--out", default="", metavar="FILE", help="Path of the bundle [NAME.fa.zip].")
@click.option("--light", is_flag=True, help="Omit weights and feedback. Then metrics cannot be recomputed.")
@click.option(
    "--sign", default="", metavar="KEY", help="Sign the bundle with the private Ed25519 key in this PEM file."
)
@click.option("--licence", default="", metavar="SPDX", help="Licence of the content, e.g. CC-BY-4.0 [no licence].")
@STORE
@JSON
@examples(
    "bundle --study digits", "bundle --study digits --out paper.fa.zip --sign key.pem", "bundle --study digits --light"
)
def bundle(as_json: bool, **arguments: Any) -> None:
    """Write a study's newest audit, its pages and its runs into one file.

    `fa-registry verify FILE` checks the file without a store. The same store always gives the same bytes.
    """
    from fa_registry.workflows import bundle as bundles

    result = bundles.make_bundle(**arguments)
    if as_json:
        print_json(
            {
                "path": str(result.path),
                "sha256": result.sha256,
                "runs": result.runs,
                "bytes": result.size,
                "signed": result.signed,
            }
        )
    else:
        print_out(*bundles.bundled_text(result))


@click.command("import", short_help="Import the runs of a bundle into a store.")
@click.argument("path", metavar="BUNDLE")
@click.option("--key", default="", metavar="PUBLIC", help="Public key (PEM file) that must have signed the bundle.")
@EXPERIMENT
@STORE
@JSON
@examples("import digits.fa.zip", "import digits.fa.zip --key author.pub --experiment imported")
def import_(path: str, key: str, experiment: str, store: str, as_json: bool) -> None:
    """Import the runs of a bundle into a store, with unchanged specifications and files.

    Runs that are already in the store are not imported again.
    """
    from fa_registry.workflows.bundle import import_into

    result = import_into(path, experiment, store, key)
    if as_json:
        print_json(result)
    else:
        print_out(f"{len(result.runs)} runs imported, {len(result.present)} were already in the store")


COMMANDS = (adopt, promote, bundle, import_)
