"""The verb that takes in what was trained elsewhere: adopt."""

from __future__ import annotations

from typing import Any

import click

from fa_registry.cli import parsing
from fa_registry.cli.options import DATA_ROOT, DEVICE, EXPERIMENT, JSON, STORE, examples
from fa_registry.output.adopt import adopted

SPEC_FIELDS = ("method", "architecture", "dataset", "seed", "epochs", "penalty", "device")


@click.command()
@click.argument("weights", metavar="WEIGHTS")
@click.option("--method", default="", help="Credit rule it was trained by, see `list methods`.")
@click.option("--architecture", default="resmlp", show_default=True)
@click.option("--dataset", default="digits", show_default=True)
@click.option("--seed", default="", help="One integer; required.")
@click.option("--epochs", default="", help="How many it was trained for; required.")
@click.option("--penalty", default="0", show_default=True, help="λ of the residual penalty.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Recipe fields (learning_rate=…) and options (architecture.d_hidden=…, method.…).",
)
@click.option("--feedback", default="", metavar="FILE", help="B_1..B_L it was trained with; without them Γ is N/A.")
@click.option(
    "--frozen-accuracy",
    default="",
    metavar="FRACTION",
    help="Test accuracy of its frozen control, 0..1, where this store holds no control of the setting. Stated by you, "
    "it allows WARN at best.",
)
@click.option("--name", default="", help="The run's name in the store.")
@click.option("--force", is_flag=True, help="Adopt again what is already adopted.")
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads to measure with."
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
    """Make a checkpoint trained elsewhere a run: measured here, judged by `audit` like any other.

    WEIGHTS: a .safetensors file, or a .pt/.pth of plain tensors (also under state_dict, model_state_dict or model), with the
    names of the published reference code: embed, blocks.N.ln|w1|w2, out_ln, out_head (resmlp);
    patch_embed, cls_token, pos_embed, blocks.N.attn.in_proj_weight, … (vit_mini); stem_conv, stem_bn, blocks.N.conv1, …
    (small_resnet). Pickled models are not read.
    The feedback FILE holds tensors B_01, B_02, …, a list of matrices B_1..B_L, or names with one running number.
    """
    from fa_registry.commands.adopt import AdoptRequest, run_adopt

    fields = parsing.fields({name: arguments.pop(name) for name in SPEC_FIELDS}, settings)
    adopted(run_adopt(AdoptRequest(weights=weights, fields=fields, **arguments)), as_json)


VERBS = (adopt,)
