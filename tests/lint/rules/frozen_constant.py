"""FA010: which numbers are a result of the frozen control."""

from __future__ import annotations

FIRES = [
    "frozen_accuracy = 0.342\n",
    "FROZEN_ACC = 34.2\n",
    "self.acc_frozen = 0.342\n",
    "report(accuracy, frozen_baseline_acc=0.342)\n",
    'results = {"frozen_acc": 34.2, "dfa": accuracy}\n',
    'results["frozen_test_accuracy"] = 0.342\n',
    "def gain(accuracy, frozen_acc=0.342):\n    return accuracy - frozen_acc\n",
    "def gain(accuracy, *, untrained_acc=0.342):\n    return accuracy - untrained_acc\n",
    "q = 0.342  # the frozen network's accuracy\nprint(test_acc > q)\n",
]
SILENT = [
    'limits = {"frozen_acc_margin_pp": 2.0}\n',
    "frozen_acc = 0.0\n",  # start value
    "frozen_acc = 1.0\n",
    "frozen_acc = None\n",
    "frozen_acc = evaluate(frozen_net)\n",
    "frozen_acc += 0.342\n",
    "frozen_lr = 0.3\nfrozen_layers = 3\nfreeze_epochs = 20\n",
    "best = 12  # frozen blocks\n",
    "q = 0.342  # frozen blocks\nprint(width > q)\n",  # compared with no accuracy
    "q = 0.342\nprint(accuracy > q)  # the frozen control is trained below\n",
    "random_acc = 0.1\nchance = 0.1\n",
]
