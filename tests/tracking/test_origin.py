"""What an adopted run says of itself."""

from __future__ import annotations

from fa_registry.tracking.writer import Origin


def test_what_was_not_given_is_said_and_has_no_digest():
    told = Origin("name", "w.pt", "ab12").provenance
    assert told["feedback file"] == "none given" and "feedback sha256" not in told
    assert (told["file"], told["sha256"]) == ("w.pt", "ab12") and told["trained"].startswith("not trained here")


def test_given_feedback_is_never_told_as_a_draw_of_ours():
    origin = Origin("name", "w.pt", "ab12", "B.pt", "cd34")
    assert origin.provenance["feedback file"] == "B.pt" and origin.provenance["feedback sha256"] == "cd34"
    assert origin.feedback_card == {"distribution": "given in B.pt, not drawn here", "source_sha256": "cd34"}
