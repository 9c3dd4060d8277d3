"""The callback of Hugging Face's Trainer: the real Trainer on a small BERT, whose blocks return tuples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fa_registry
from tests.commands.test_track import record_of

pytestmark = pytest.mark.long  # transformers is loaded in ten seconds
fa_registry.torchvision()  # transformers imports it, which fails with a CPU torch until its operators are declared
transformers = pytest.importorskip("transformers")
TOKENS, CLASSES, LAYERS = 20, 3, 2


def model():
    config = transformers.BertConfig(
        vocab_size=TOKENS,
        hidden_size=8,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        num_labels=CLASSES,
    )
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config)


def adapted(bert):
    return fa_registry.adapt(
        bert,
        sites=[f"bert.encoder.layer.{index}" for index in range(LAYERS)],
        skip="inside",
        readout="bert.pooler",
        inputs=lambda x: {"input_ids": x},
        output=lambda out: out.logits,
        state=lambda out: out[0],
    )


def data():
    x = torch.randint(TOKENS, (12, 6), generator=torch.Generator().manual_seed(1))
    return x, torch.arange(12) % CLASSES


@pytest.mark.parametrize("evaluates", ["epoch", "no"])
def test_a_training_is_a_run_with_its_epochs(workplace, tmp_path, evaluates):
    from fa_registry.external.callbacks.transformers import TransformersCallback

    (x, y), bert = data(), model()
    rows = [{"input_ids": tokens, "labels": label} for tokens, label in zip(x, y, strict=True)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        eval_strategy=evaluates,
        logging_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = TransformersCallback(model=adapted, eval=(x, y), method="mine", seed=7)
    trainer = transformers.Trainer(
        bert,
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        compute_metrics=lambda seen: {"accuracy": float(np.mean(seen.predictions.argmax(1) == seen.label_ids))},
        callbacks=[callback],
    )
    trainer.train()
    record = record_of(callback)
    assert record.status == "complete" and record.spec.epochs == 2
    assert record.spec.architecture == "BertForSequenceClassification"
    with fa_registry.track(adapted(bert), eval=(x, y), method="again") as run:
        run.epoch()
    assert record.measurements.sites["h_norm"] == record_of(run).measurements.sites["h_norm"]
    known = [reading.value is not None for reading in record.trajectory["accuracy"]]
    assert known == ([False, True, True] if evaluates == "epoch" else [False, False, False])


def test_a_language_model_reports_its_test_loss_per_token(workplace, tmp_path):
    """A GPT-2-shaped model, made from a config without a download; it shifts its labels by one position."""
    from fa_registry.external.callbacks.transformers import TransformersCallback

    shape = {"n_embd": 8, "n_layer": LAYERS, "n_head": 2, "n_positions": 8, "vocab_size": TOKENS}
    torch.manual_seed(0)
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, use_cache=False))
    x, _ = data()
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = TransformersCallback(
        model=lambda model: fa_registry.adapt(
            model,
            sites=[f"transformer.h.{block}" for block in range(LAYERS)],
            skip="inside",
            readout="transformer.ln_f",
            inputs=lambda x: {"input_ids": x},
            output=lambda out: out.logits,
            state=lambda out: out[0] if isinstance(out, tuple) else out,
        ),
        eval=(x[:, :-1], x[:, 1:].contiguous()),
        method="mine",
    )
    labels = x.clone()
    labels[:, 0] = -100  # never predicted; the Trainer would count it, and eval_loss would be 5/6 of the loss per token
    rows = [{"input_ids": tokens, "labels": label} for tokens, label in zip(x, labels, strict=True)]
    transformers.Trainer(gpt, arguments, train_dataset=rows, eval_dataset=rows, callbacks=[callback]).train()
    gpt.eval()
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(gpt(x[:, :-1]).logits.flatten(0, 1), x[:, 1:].flatten()).item()
    record = record_of(callback)
    assert record.status == "complete" and "accuracy" not in record.measurements.scalars
    assert record.measurements.scalars["token_loss"].value == pytest.approx(expected, rel=1e-4)
    assert [reading.value is not None for reading in record.trajectory["token_loss"]] == [False, True, True]
    assert [reading.value is not None for reading in record.trajectory["loss_train"]] == [False, True, True]
