#!/bin/sh
# A method of your own, from its skeleton to its form. Run this script in an empty folder, in the environment of fa_registry.
set -e
fa-registry new method my_rule
pip install --quiet --editable my_rule
python -m pytest -q my_rule                                               # the method does what its card says
fa-registry train --method my_rule --seed 1 --epochs 2 --device cpu
fa-registry train --method bp --control frozen --seed 1 --epochs 2 --device cpu    # its frozen control
fa-registry audit --experiment fa_registry --exit-zero
ls reports/forms/my-rule-*.html
