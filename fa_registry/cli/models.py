"""The commands `adopt`, `promote`, `bundle` and `import`."""

from __future__ import annotations

from typing import Any

import click

from fa_registry import api
from fa_registry.cli.options import JSON, completer, examples, takes
from fa_registry.cli.tables import print_result
from fa_registry.errors import pluralise
from fa_registry.option_table import build
from fa_registry.studies.options import CheckpointOptions, StoreLocation

NOT_ADOPTED = "control study"  # options of a specification that an adopted run does not have


@click.command(short_help="Create a run from a checkpoint that another program trained.")
@click.argument("weights", metavar="WEIGHTS")
@takes(CheckpointOptions, StoreLocation, without=NOT_ADOPTED)
@JSON
@examples(
    "adopt dfa.pt --method dfa --seed 42 --epochs 100 --feedback B.pt --frozen-accuracy 0.64",
    "adopt final.safetensors --method bp --seed 1 --epochs 30 --set architecture.d_hidden=512",
)
def adopt(weights: str, as_json: bool, **arguments: Any) -> None:
    """Create a run from a checkpoint that another program trained.

    The command measures the checkpoint. Afterwards, `audit` judges the run in the same way as other runs.

    WEIGHTS is a .safetensors file, or a .pt or .pth file that contains only tensors. In a .pt or .pth file, the tensors may also
    be in the entry state_dict, model_state_dict or model. Pickled models are not read. The tensors have the names of the
    published reference code. For resmlp: embed, blocks.N.ln|w1|w2, out_ln, out_head. For vit_mini: patch_embed, cls_token,
    pos_embed, blocks.N.attn.in_proj_weight, …. For small_resnet: stem_conv, stem_bn, blocks.N.conv1, ….

    The feedback FILE has one of three forms. It contains tensors with the names B_01, B_02, …, or a list of the matrices B_1..B_L,
    or tensors with numbered names such as B.0, B.1, …. The first number is 0 or 1.
    """
    from fa_registry.external.adopt import run_adopt

    result = run_adopt(weights, build(CheckpointOptions, arguments), build(StoreLocation, arguments))
    print_result(result, as_json, *result.lines())


@click.command(short_help="Register the weights of an audited run as a model version.")
@click.argument("run", metavar="RUN")
@click.option("--name", default="", help="Name of the registered model [made from method and setting].")
@click.option(
    "--edition",
    default="",
    help="Edition whose verdict decides whether the run is promoted [the leading edition of the newest audit].",
    shell_complete=completer("editions"),
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
@takes(StoreLocation, only="data_root store")
@JSON
@examples(
    "promote 4f1c…",
    "promote 4f1c… --name dfa-digits --edition 2026-05",
    'promote 4f1c… --override-reason "the negative control of our tutorial"',
)
def promote(as_json: bool, **arguments: Any) -> None:
    """Register the final weights of an audited run as a model version, with the verdict.

    RUN is a run id, or the first characters of a run id. First, the metrics of the run are recomputed as in `verify`.

    The model version refers to the files of the run, without pickle and without an MLflow flavour. Its tags contain the verdicts,
    the editions and the digests. To load a model version, call fa_registry.load_model("models:/NAME@alias").

    A run with verdict FAIL or INCOMPLETE is promoted only with --override-reason.

    Exit 0: the model version exists, 2: the request is invalid, 3: a file or metric of the run differs from what was recorded, 4:
    the verdict does not allow the promotion.
    """
    from fa_registry.audits.promote import run_promote

    location = StoreLocation(arguments.pop("store"), data_root=arguments.pop("data_root"))
    result = run_promote(location=location, **arguments)
    print_result(result, as_json, *result.lines())


@click.command(short_help="Write a study's audit and runs into one file that can be verified.")
@takes(api.bundle)
@JSON
@examples(
    "bundle --study digits", "bundle --study digits --out paper.fa.zip --sign key.pem", "bundle --study digits --light"
)
def bundle(as_json: bool, **arguments: Any) -> None:
    """Write a study's newest audit, its pages and its runs into one file.

    `fa-registry verify FILE` checks the file without a store. The same store always gives the same bytes.
    """
    result = api.bundle(**arguments)
    fields = {"path": str(result.path), "sha256": result.sha256, "runs": result.runs, "bytes": result.size}
    print_result({**fields, "signed": result.signed}, as_json, *result.lines())


@click.command("import", short_help="Import the runs of a bundle into a store.")
@click.argument("path", metavar="BUNDLE")
@takes(api.import_bundle)
@JSON
@examples("import digits.fa.zip", "import digits.fa.zip --key author.pub --experiment imported")
def import_(path: str, as_json: bool, **arguments: Any) -> None:
    """Import the runs of a bundle into a store, with unchanged specifications and files.

    Runs that are already in the store are not imported again.
    """
    result = api.import_bundle(path, **arguments)
    text = f"{pluralise(len(result.runs), 'run')} imported; already in the store: {len(result.present)}"
    print_result(result, as_json, text)


COMMANDS = (adopt, promote, bundle, import_)
