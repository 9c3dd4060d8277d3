"""FA011: runs that are selected by their result, seeds without effect, unequal budgets, and errors under another name."""

from __future__ import annotations

HEAD = "import time\nimport numpy as np\nimport torch\nfrom torch import nn\n# feedback alignment\n"
NET = "class Net(nn.Module):\n    pass\n"


def report(*lines: str) -> str:
    """A function that receives the accuracies of several seeds."""
    return f"{HEAD}def f(accuracies, runs, table):\n" + "".join(f"    {line}\n" for line in lines)


def training(*lines: str, head: str = "", signature: str = "f(seed)") -> str:
    body = "".join(f"    {line}\n" for line in (*lines, "for x in data:", "    optimizer.step()"))
    return f"{HEAD}{head}def {signature}:\n{body}"


FIRES = [
    report("return np.mean(sorted(accuracies)[1:])"),
    report("return np.sort(accuracies)[2:].mean()"),
    report("accuracies.sort()", "return np.mean(accuracies[-5:])"),
    report("order = accuracies.argsort()[1:]", "return accuracies[order].mean()"),
    report("return np.delete(accuracies, np.argmin(accuracies)).mean()"),
    report("accuracies.remove(min(accuracies))", "return np.mean(accuracies)"),
    report("return scipy.stats.trim_mean(accuracies, 0.1)"),
    report("accs = np.array(accuracies)", "return accs[accs > 0.3].mean()"),
    report("good = [r for r in runs if r['acc'] >= 0.5]", "return np.mean([r['acc'] for r in good])"),
    report("kept = [r for r in runs if np.isfinite(r.loss)]", "return np.mean([r.acc for r in kept])"),
    report("table = table.dropna()", "return table.groupby('method').mean()"),
    report("runs.sort(key=lambda r: r['val'])", "return runs[3:]"),
    training("acc = once(seed)", "while acc < 0.5:", "    seed += 1", "    acc = once(seed)"),
    training("net = Net()", "torch.manual_seed(seed)", head=NET),
    training("w = torch.randn(3, 4)", "np.random.seed(seed)", "torch.manual_seed(seed)"),
    training("random = torch.Generator().manual_seed(0)", "w = torch.randn(3, generator=random)"),
    training("torch.manual_seed(int(time.time()))"),
    f"{HEAD}w = torch.randn(3, 4)\nfor e in range(9):\n    w -= 0.1 * e\n",
    report("std = accuracies.std() / np.sqrt(len(accuracies))", "return std"),
    report("sem = accuracies.std() / len(accuracies) ** 0.5", "print(f'mean 0.3, std {sem:.3f}')"),
    report("return {'std': table.sem()}"),
    f'{HEAD}EPOCHS = {{"bp": 10, "fa": 100}}\n',
    f'{HEAD}def f():\n    for name, n_epochs in (("backprop", 5), ("dfa", 50)):\n        run(name, n_epochs)\n',
    f'{HEAD}grid = dict(bp=1)\ngrid = {{"bp": [0.1], "fa": [0.1, 0.2, 0.3]}}\n',
]
RANDOM = f"{HEAD}np.random.seed(3)\nnet = nn.Linear(3, 3)\nfor e in range(9):\n    optimizer.step()\n"
SEEDED = "accs = []\nfor seed in range(5):\n    accs.append(run(seed))\n"
FIRES += [
    training("torch.manual_seed(hash(name) % 1000)"),
    training("torch.manual_seed(0)", "net = Net()", head=NET, signature="f(run_id)"),
    RANDOM,
    f"{HEAD}{SEEDED}print('accuracy', np.max(accs))\n",
    f"{HEAD}def f(args):\n    epochs = args.epochs // 3 if args.method == 'frozen' else args.epochs\n    return epochs\n",
]
SILENT = [
    RANDOM.replace("np.random.seed(3)", "np.random.seed(3)\ntorch.manual_seed(3)"),
    RANDOM.replace("nn.Linear(3, 3)", "np.zeros((3, 3))"),
    training("torch.manual_seed(0)", "net = Net()", head=NET, signature="f(rate)"),
    f"{HEAD}{SEEDED}print('accuracy', np.min(accs), np.max(accs))\n",  # the range
    f"{HEAD}{SEEDED}print('accuracy', np.mean(accs))\n",
    f"{HEAD}def f(args):\n    rate = 0.1 if args.method == 'frozen' else 0.2\n    return rate\n",
    report("return np.mean(accuracies), np.std(accuracies, ddof=1)"),
    report("print(min(accuracies), max(accuracies), sorted(accuracies))"),
    report("return sorted(accuracies)[len(accuracies) // 2]"),  # the median
    report("return accuracies[1:]"),  # not sorted
    report("print(len([r for r in runs if r['acc'] < 0.2]), 'runs failed')"),
    report("return table['value'].dropna()"),  # one column of a figure
    report("fa = [r for r in runs if r['method'] == 'fa']", "return fa"),
    report("sem = accuracies.std() / np.sqrt(len(accuracies))", "print(f'sem {sem:.3f}')"),
    report("return {'std': table.std(), 'sem': table.sem()}"),
    training("torch.manual_seed(seed)", "net = Net()", head=NET),
    training("random = torch.Generator().manual_seed(17 * seed)", "w = torch.randn(3, generator=random)"),
    training("split = torch.Generator().manual_seed(0)", "torch.manual_seed(seed)", "net = Net()", head=NET),
    training("torch.manual_seed(0)", "net = Net()", "torch.manual_seed(seed)", head=NET),  # the first seed counts
    training("while acc < 0.5:", "    acc = once(net)", signature="f(net, acc)"),  # trains on until it is good enough
    f"{HEAD}from common import set_seed\nw = torch.randn(3, 4)\nfor e in range(9):\n    w -= 0.1 * e\n",
    f'{HEAD}EPOCHS = {{"bp": 100, "fa": 100}}\nLR = {{"bp": 0.1, "fa": 0.01}}\n',
    report("return np.mean(sorted(accuracies)[1:])").replace("# feedback alignment\n", ""),
]
