#!/bin/sh
# A method of one's own, from its skeleton to its form; in an empty folder. The package has to be importable: `pip install --editable`
# does that, and PYTHONPATH with the package's metadata would do.
set -e
fa-registry new method my_rule
pip install --quiet --no-build-isolation --no-deps --editable my_rule
python -m pytest -q my_rule                                               # it is what its card says
fa-registry train --method my_rule --seed 1 --epochs 2 --device cpu
fa-registry train --method bp --control frozen --seed 1 --epochs 2 --device cpu    # the control that it must beat
fa-registry audit --experiment fa_registry --exit-zero
ls reports/forms/my-rule-*.html
