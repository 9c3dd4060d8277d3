"""What is kept says when and on what it was measured; one command records every figure of a processor."""

from __future__ import annotations

import argparse
import importlib
import json

from benchmarks import record
from benchmarks.recording import FOLDER, add_options, recorded, tell, where


def test_what_is_told_is_kept_only_where_asked(tmp_path, capsys):
    path, parser = tmp_path / "found.json", argparse.ArgumentParser()
    add_options(parser, path)
    tell({"value": 3}, ["a line"], parser.parse_args([]), path)
    assert capsys.readouterr().out == "a line\n" and recorded(path) is None
    tell({"value": 3}, ["a line"], parser.parse_args(["--record", "--json"]), path)
    kept = recorded(path)
    assert kept == json.loads(capsys.readouterr().out) and kept["value"] == 3
    assert kept["date"] in where(kept, "benchmarks.x") and "torch 2" in where(kept, "benchmarks.x")


def test_one_command_records_every_figure_of_a_processor():
    modules = {name: importlib.import_module(name) for name, *_ in record.COMMANDS}
    kept = {modules[name].MEASURED.name for name, *options in record.COMMANDS if options == ["--record"]}
    assert kept == {
        "first_light.json",
        "end_to_end.json",
        "operations.json",
        "audit_again.json",
        "registry_scale.json",
        "store_scale.json",
    }
    assert all(modules[name].MEASURED.parent == FOLDER for name, *options in record.COMMANDS if options)
    assert record.COMMANDS[-1] == ("benchmarks.performance",)
