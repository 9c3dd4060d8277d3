"""`python -m fa_registry.reference` sees what is stale, and writes it."""

from __future__ import annotations

from fa_registry.reference.__main__ import PAGES, main, stale


def test_a_page_that_is_stale_or_not_there_is_told_and_written(tmp_path, capsys):
    assert main(["--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("is stale; write it again with --write") == len(PAGES)
    assert main(["--folder", str(tmp_path), "--write"]) == 0
    assert stale(tmp_path) == [] and main(["--folder", str(tmp_path)]) == 0
    (tmp_path / "reference-cli.md").write_text("old", encoding="utf-8")
    assert stale(tmp_path) == ["reference-cli.md"]
