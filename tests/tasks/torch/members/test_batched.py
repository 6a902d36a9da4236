"""The tables of rules, which are found in their files."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from fedlearn.tasks.torch import rules
from fedlearn.tasks.torch.members.batched import RULES, rules_in


def test_a_file_with_a_table_is_all_that_a_rule_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("own_rules/__init__", ""), ("own_rules/one", "RULES = {abs: min}"), ("own_rules/no", "")):
        (tmp_path / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert rules_in(import_module("own_rules")) == {abs: min}


def test_no_function_has_rules_in_two_files_and_each_rule_is_used() -> None:
    modules = [import_module(f"{rules.__name__}.{module.name}") for module in iter_modules(rules.__path__)]
    tables = [module.RULES for module in modules if hasattr(module, "RULES")]
    assert len(tables) >= 5
    functions = [function for table in tables for function in table]
    assert len(functions) == len(set(functions))
    assert all(RULES[function] is rule for table in tables for function, rule in table.items())
