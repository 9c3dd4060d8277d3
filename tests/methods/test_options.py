"""An option out of its range, or one that a method does not have, is one problem that names the option."""

from __future__ import annotations

import pytest

from fa_registry.errors import InvalidFields
from tests.helpers.tiny_tasks import tiny_spec

REFUSED = [
    ("dfa", {"rank": -1}),
    ("dfa", {"rank": 1.5}),
    ("fdfa", {"feedback_rate": 0}),
    ("grape", {"feedback_rate": 0}),
    ("grape", {"anchor_every": 0}),
    ("grape", {"anchor_every": -1}),
    ("grape", {"anchor_every": 1.5}),
    ("grape", {"anchor_every": "often"}),
    ("weight_fa", {"rank": -2}),
    ("dni", {"conditioning": "labels"}),
    ("dni", {"hidden": -1}),
    ("dtp", {"target_step": 0}),
    ("dtp", {"sigma": -0.1}),
    ("dtp", {"hidden": -1}),
    ("ep", {"contrast": "energy"}),
    ("ep", {"beta": 0}),
    ("ep", {"steps": 0}),
    ("ep", {"step_size": -1}),
    ("forward_forward", {"threshold": 0}),
    ("forward_forward", {"threshold": "high"}),
    ("forward_forward", {"theta": 1}),
    ("pepita", {"scale": 0}),
    ("pepita", {"scale": "wide"}),
    ("pepita", {"scal": 1}),
    ("predictive_coding", {"steps": 0}),
    ("predictive_coding", {"step_size": 0}),
    ("predictive_coding", {"fixed_prediction": "perhaps"}),
    ("weight_mirror", {"mirror_rate": 0}),
    ("weight_mirror", {"mirror_rate": "fast"}),
    ("weight_mirror", {"mirror_batch": 0}),
    ("weight_mirror", {"mirror_batch": 1.5}),
    ("weight_mirror", {"mirror_rat": 0.1}),
    ("state_bridge", {"conditioning": "logits"}),
    ("credit_bridge", {"draws": 0}),
    ("credit_bridge", {"temperature": 0}),
    ("credit_bridge", {"noise": -1}),
    ("credit_bridge", {"thinning": 0}),
    ("credit_bridge", {"conditioning": "logits"}),
    *((method, {"scale": 1}) for method in ("kolen_pollack", "usf", "brsf", "frsf", "weight_fa")),
]


@pytest.mark.parametrize(("method", "options"), REFUSED)
def test_a_wrong_option_is_one_problem(method, options):
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(method=method, method_options=options)
    (problem,) = caught.value.problems
    (name,) = options
    assert problem.steps == ("method_options", name)
