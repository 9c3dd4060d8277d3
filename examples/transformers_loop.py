"""A vision transformer and its frozen control in Hugging Face's Trainer. Needs `pip install 'fa_registry[transformers]'`.

python examples/transformers_loop.py    half a minute; writes mlflow.db and reports/ into the current folder
"""

import torch

import fa_registry

fa_registry.torchvision()  # transformers imports torchvision, which fails with a CPU torch until this is called
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed  # noqa: E402
from transformers.models.vit.modeling_vit import ViTLayer  # noqa: E402

from fa_registry.datasets import CATALOG  # noqa: E402
from fa_registry.external.callbacks.transformers import TransformersCallback  # noqa: E402

data = CATALOG.get("digits").load(torch.device("cpu"), None, 7)
x, y = data.test_images[:128], data.test_labels[:128]
pairs = (data.augment(data.train_images, torch.Generator()), data.train_labels), (data.test_images, data.test_labels)
train, test = ([{"pixel_values": image, "labels": label} for image, label in zip(*pair, strict=True)] for pair in pairs)
shape = {"image_size": 12, "patch_size": 4, "num_channels": 1, "num_hidden_layers": 2, "num_attention_heads": 2}
config = ViTConfig(**shape, hidden_size=32, intermediate_size=64, num_labels=10)


def adapted(model):
    sites = [name for name, module in model.named_modules() if isinstance(module, ViTLayer)]
    return fa_registry.adapt(model, sites, inputs=lambda x: {"pixel_values": x}, output=lambda out: out.logits)


def accuracy(predicted):
    return {"accuracy": (predicted.predictions.argmax(1) == predicted.label_ids).mean()}


options = {"num_train_epochs": 3, "learning_rate": 5e-3, "per_device_train_batch_size": 64, "use_cpu": True}
arguments = TrainingArguments("out", **options, eval_strategy="epoch", save_strategy="no", report_to="none")
for control in (False, True):
    set_seed(7)
    tracking = TransformersCallback(model=adapted, eval=(x, y), method="bp", seed=7, control=control, experiment="vit")
    model = ViTForImageClassification(config)
    Trainer(model, arguments, None, train, test, compute_metrics=accuracy, callbacks=[tracking]).train()

print(fa_registry.audit(experiment="vit"))
