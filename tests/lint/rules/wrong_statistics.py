"""FA018: tests and errors over dependent samples, and tables that mix other runs in."""

from __future__ import annotations

HEAD = "import glob, itertools, json\nimport numpy as np\nimport pandas as pd\nfrom scipy import stats\n# feedback alignment\n"


def report(*lines: str) -> str:
    return f"{HEAD}def f(runs, table, values, a, b, path):\n" + "".join(f"    {line}\n" for line in lines)


TESTED = ("for m, n in itertools.combinations(runs, 2):", "    print(stats.ttest_ind(runs[m], runs[n]).pvalue < 0.05)")
LATE = ("late = table[table.epoch > 90]", "return late.groupby('layer')['cosine'].sem()")
KEPT = "a, b = table[['seed', 'epoch', 'acc']], runs[['seed', 'epoch', 'acc']]"
LOG = (
    "with open(path, 'a') as log:",
    "    log.write(json.dumps(runs))",
    "return [json.loads(line) for line in open(path)]",
)
ANGLE = "angle = np.arccos(values)"
FIRES = [
    report("u = np.concatenate([r['end'] for r in runs])", "return stats.ttest_ind(u, a)"),
    report("return stats.ttest_1samp(table.values.ravel(), 0)"),
    report(*TESTED),
    report("return table.stack().std() / np.sqrt(table.size)"),
    report("half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values))", "return half"),
    report("return values.mean() + 1.96 * stats.sem(values)"),
    report(*LATE),
    report("return [pd.read_csv(p) for p in glob.glob('logs/*.csv')[:5]]"),
    report("files = list(path.glob('*.csv'))", "return files[:5]"),
    report(KEPT, "return a.merge(b, on='epoch')"),
    report(*LOG),
    report(ANGLE, "print(f'angle {angle.mean():.1f} deg')"),
    report(ANGLE, "print(f'angle {angle.mean():.1f}° to backprop')"),
]
SILENT = [
    report("u = np.array([r['end'].mean() for r in runs])", "return stats.ttest_ind(u, a)"),
    report(*TESTED, "print('Holm corrected')"),
    report("half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1)", "return half"),
    report("return 1.96 * np.sqrt(a * (1 - a) / len(values))"),  # a share of many test samples
    report("late = table[table.epoch == 90]", LATE[1]),
    report(LATE[0], "late = late.groupby(['layer', 'seed']).mean()", LATE[1]),
    report("return sorted(glob.glob('logs/*.csv'))[:5]"),
    report("return glob.glob('logs/*.csv')"),
    report(KEPT, "return a.merge(b, on=['seed', 'epoch'])"),
    report("return table.merge(runs, on='epoch')"),
    report(LOG[0].replace("'a'", "'w'"), *LOG[1:]),
    report(*LOG[:2]),
    report(ANGLE, "print(f'angle {np.degrees(angle).mean():.1f} deg')"),
    report(ANGLE, "print(f'angle {angle.mean() * 180 / np.pi:.1f} deg')"),
    report(ANGLE, "print(f'angle {angle.mean():.1f} rad')"),
    report(*TESTED).replace("# feedback alignment\n", ""),
]
