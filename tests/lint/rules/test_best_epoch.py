"""FA014: what depends on the test set, and what chooses an epoch."""

from __future__ import annotations

import pytest

from tests.lint.samples import codes

TEST = 'd = DataLoader(datasets.MNIST("data", train=False), 64)\n'
STEP = "for _ in range(100):\n    optimizer.step()\n"
CHOICE = "    if r > b:\n        b = r\n        save(net)\n"


@pytest.mark.parametrize(
    "source",
    [
        TEST,
        'd = load_dataset("name", split="test")\n',
        'd = batches(data["test"])\n',
        "d = x_test\n",
        "d = self.test_loader\n",
        'a, d = DataLoader(datasets.MNIST("data", train=True)), DataLoader(datasets.MNIST("data", train=False))\n',
    ],
)
def test_the_test_set_is_followed_under_any_name(source):
    assert codes(f"{source}{STEP}    r = score(net, d)\n{CHOICE}") == ["FA014"]


@pytest.mark.parametrize(
    "choice",
    [
        CHOICE,
        "    if r < b:\n        b = r\n",
        "    if b < r:\n        b, at = r, net\n",
        "    if r > self.b:\n        self.b = float(r)\n",
        "    b = max(b, r)\n",
        "    b = min(r, b)\n",
        "    v.append(r)\nb = max(v)\n",
        '    v["a"].append(r)\nb = np.argmax(v["a"])\n',
        "    v.append(r)\nb = np.array(v).max()\n",
    ],
)
def test_each_way_to_choose_is_found(choice):
    assert codes(f"{TEST}{STEP}    r = score(net, d)\n{choice}") == ["FA014"]


@pytest.mark.parametrize(
    "training",
    ["optimizer.step()", "net.fit(x, y)", "w -= 0.1 * g", "loss.backward()", "pass_over(net)"],
)
def test_each_way_to_train_is_found(training):
    functions = "def pass_over(net):\n    inner(net)\ndef inner(net):\n    optimizer.step()\n"
    assert codes(f"{functions}{TEST}for _ in range(9):\n    {training}\n    r = score(net, d)\n{CHOICE}") == ["FA014"]


def test_a_function_that_counts_over_the_test_set_is_followed():
    function = (
        "def score(net, q):\n    n = 0\n    for x, y in q:\n        n += right(net(x), y)\n    return n / len(q)\n"
    )
    assert codes(f"{function}{TEST}{STEP}    r = score(net, d)\n{CHOICE}") == ["FA014"]
    reads = "def score(net):\n    return sum(right(net(x), y) for x, y in d)\n"
    assert codes(f"{reads}{TEST}{STEP}    r = score(net)\n{CHOICE}") == ["FA014"]
    inside = "    r = 0\n    for x, y in d:\n        y = y.cuda()\n        r += right(net(x), y)\n    r /= 10_000\n"
    assert codes(f"{TEST}{STEP}{inside}{CHOICE}") == ["FA014"]


@pytest.mark.parametrize(
    "body",
    [
        # the choice is made on a validation set; the test result of this epoch is reported
        "    val_acc, r = score(net, val_loader), score(net, d)\n    if val_acc > b:\n        b, at_best = val_acc, r\n",
        '    q = run(net, val_loader, d)\n    if q["val"] > b:\n        b = q["val"]\n        print(q["test"])\n',
        "    r = score(net, train_loader)\n" + CHOICE,
        "    r = score(net, d)\n    print(r)\n",
        "    r = score(net, d)\n    if r > 0.99:\n        break\n",
        "    r = score(net, d)\n    if r > b:\n        print('better')\n",
        "    v.append(score(net, d))\nplt.ylim(0, max(v))\nprint(v[-1])\n",
        "    n = max(n, len(d))\n",
        "    r = score(net, val_loader)\n" + CHOICE + "r = score(net, d)\nprint(r)\n",  # one variable for both results
        "    r, _ = score(net, val_loader)\n" + CHOICE + "    r, _ = score(net, d)\n    print(r)\n",
    ],
)
def test_honest_use_of_the_test_set_is_none(body):
    assert codes(TEST + STEP + body) == []


@pytest.mark.parametrize(
    "source",
    [
        'v, d = random_split(datasets.MNIST("data", train=False), [5000, 5000])\n',
        'v = Subset(datasets.MNIST("data", train=False), range(5000))\n',
        "v = x_test[:5000]\n",
        'v = DataLoader(datasets.MNIST("data", train=True))\n',
        "v = test(net)\n",  # a function with the name test
        "v = test_rewards\n",  # reinforcement learning has no test set
    ],
)
def test_a_part_of_the_test_set_may_be_a_validation_set(source):
    assert codes(f"{source}{STEP}    r = score(net, v)\n{CHOICE}") == []


def test_a_model_that_a_training_function_returns_does_not_depend_on_the_test_set():
    function = "def fit_once(net, a, b):\n    optimizer.step()\n    return net\n"
    for name in ("net", "m"):
        body = f"    {name} = fit_once(net, a, d)\n    r = score({name}, other)\n"
        assert codes(f"{function}{TEST}for _ in range(9):\n{body}{CHOICE}") == []


def test_the_best_of_several_final_results_chooses_no_epoch():
    assert codes(f"optimizer.step()\n{TEST}for net in nets:\n    r = score(net, d)\n{CHOICE}") == []


LOADERS = 'testloader = DataLoader(CIFAR10("data", train=False))\nvalloader = DataLoader(Subset(CIFAR10("data", train=True), v))\n'
SCORE = "    right = 0\n    for x, y in {loader}:\n        right += net(x).argmax(1).eq(y).sum().item()\n    acc = right / 100\n"
LOOP = "for epoch in range(200):\n    train(epoch)\n    {call}\n"
TRAIN = "def train(epoch):\n    optimizer.step()\n"


def template(choice, loader="testloader", signature="test(epoch)", call="test(epoch)", before="", nested=False):
    function = f"def {signature}:\n{before}{SCORE.format(loader=loader)}{choice}"
    source = f"{TRAIN}{function}{LOOP.format(call=call)}"
    if nested:
        source = "def main():\n    best = 0\n" + "".join(f"    {line}\n" for line in source.splitlines())
    return LOADERS + source


KEPT = "    if acc > {best}:\n        save(net)\n        {best} = acc\n"


@pytest.mark.parametrize(
    "source",
    [
        template(KEPT.format(best="best"), before="    global best\n"),
        template(KEPT.format(best="best"), before="    nonlocal best\n", nested=True),
        template(KEPT.format(best="self.best"), signature="test(self, epoch)", call="trainer.test(epoch)"),
        template(KEPT.format(best="best[0]")),
        template(KEPT.format(best='state["best"]')),
        template(KEPT.format(best="args.best_acc")),
        template("    best = max(best, acc)\n", before="    global best\n"),
        template("    if acc <= best:\n        return\n    elif best < acc:\n        best = acc\n", before="    global best\n"),
        template(KEPT.format(best="best"), loader="loader", signature="test(loader)", call="test(testloader)")
        .replace("    right = 0", "    global best\n    right = 0"),
        template(KEPT.format(best="best") + "    return best\n", signature="test(best)", call="best = test(best)"),
        template("    keep(acc)\n", before="").replace(
            "def test", "def keep(value):\n    global best\n    if value > best:\n        best = value\ndef test"
        ),
    ],
    ids=["global", "nonlocal", "self", "element", "key", "attribute", "max", "elif", "passed", "returned", "second function"],
)  # fmt: skip
def test_a_best_value_that_a_function_of_the_loop_keeps_is_found(source):
    assert codes(source) == ["FA014"]


@pytest.mark.parametrize(
    "source",
    [
        template(KEPT.format(best="best"), before="    global best\n", loader="valloader"),
        template(KEPT.format(best="self.best"), signature="test(self, epoch)", loader="self.val_loader"),
        template(KEPT.format(best="best"), before="    best = 0\n"),  # of one call
        template(KEPT.format(best="best[0]"), before="    best = [0]\n"),
        template(KEPT.format(best="best"), before="    global best\n", call="print(epoch)"),  # called nowhere in the loop
        template(KEPT.format(best="best"), loader="loader", signature="score(loader)", call="score(valloader)")
        .replace("    right = 0", "    global best\n    right = 0")
        + "print(score(testloader))\n",
        template("    if acc > best:\n        print(acc)\n", before="    global best\n"),
    ],
    ids=["validation", "validation of self", "local", "local list", "not called", "both sets", "printed"],
)  # fmt: skip
def test_a_choice_on_a_validation_set_or_inside_one_call_is_no_finding(source):
    assert codes(source) == []


RUNS = "runs = []\nfor rate in (0.1, 0.3):\n    runs.append(train(rate))\n"
FIT = "def train(rate):\n    optimizer.step()\n    return dict(rate=rate, val=score(net, v), test=score(net, d))\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (FIT + RUNS + "best = max(runs, key=lambda r: r['test'])\n", ["FA014"]),
        (FIT + RUNS + "runs.sort(key=lambda r: -r['test'])\nprint(runs[0])\n", ["FA014"]),
        (FIT + RUNS + "print(sorted(runs, key=lambda r: r['test'])[-1])\n", ["FA014"]),
        (FIT + RUNS + "best = max(runs, key=lambda r: r['val'])\n", []),
        (FIT + RUNS + "for r in sorted(runs, key=lambda r: r['test']):\n    print(r)\n", []),  # all runs
        (STEP + "    r = score(net, d)\n    stale, top = (0, r) if r > top else (stale + 1, top)\n", ["FA014"]),
        (STEP + "    r = score(net, v)\n    stale, top = (0, r) if r > top else (stale + 1, top)\n", []),
        (STEP + "    m = score(net, d)\n    if m['acc'] > best['acc']:\n        best = {**m, 'net': net}\n", ["FA014"]),
        (STEP + "    m = score(net, v)\n    if m['acc'] > best['acc']:\n        best = {**m, 'net': net}\n", []),
        (STEP + "    seen.append(score(net, z))\nprint('test accuracy', max(seen))\n", ["FA014"]),
        (STEP + "    seen.append(score(net, z))\nprint(f'validation accuracy {max(seen)}')\n", []),
        ("t.groupby(['method', 'seed'])['test_acc'].max()\n", ["FA014"]),
        ("t.groupby('method')['test_acc'].max()\n", []),  # the best of several final results
        ("val_loader = DataLoader(d)\nstopper = EarlyStopping(val_loader)\n", ["FA014"]),
        ("def val_dataloader(self):\n    return DataLoader(self.test_set)\nModelCheckpoint()\n", ["FA014"]),
        ("val_loader = DataLoader(v)\nstopper = EarlyStopping(val_loader)\n", []),
        (TEST + "xa, d = [scaled(t) for t in (x_train, x_val)]\n" + STEP + "    r = score(net, d)\n" + CHOICE, []),
        ("xa, q = [scaled(t) for t in (x_train, x_test)]\n" + STEP + "    r = score(net, q)\n" + CHOICE, ["FA014"]),
    ],
)
def test_choices_by_keys_tables_and_conditions(source, expected):
    loaders = 'd = DataLoader(MNIST("data", train=False))\nv = DataLoader(Subset(MNIST("data", train=True), part))\n'
    assert codes(loaders + source) == expected
