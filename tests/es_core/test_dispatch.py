import os
import subprocess
import sys

import pytest

import es_core
from tests.patience import LIMIT_S


def run_python(code: str, isa: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"FEDLEARN_ISA": isa}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_every_machine_has_the_base_instruction_set_as_its_last_choice() -> None:
    assert es_core.supported_isas()[-1] == "base"


def test_a_selected_instruction_set_is_the_one_in_use(isa: str) -> None:
    assert es_core.current_isa() == isa


def test_an_unknown_instruction_set_is_refused_with_the_choices() -> None:
    before = es_core.current_isa()
    choices = ", ".join(es_core.supported_isas())
    with pytest.raises(ValueError, match=f"expected one of {choices} on this processor, got v9"):
        es_core.select_isa("v9")
    assert es_core.current_isa() == before


def test_the_environment_chooses_the_instruction_set() -> None:
    result = run_python("import es_core; print(es_core.current_isa())", "base")
    assert (result.returncode, result.stdout.strip()) == (0, "base"), result.stderr


def test_without_a_choice_the_best_instruction_set_is_in_use() -> None:
    result = run_python("import es_core; print(es_core.current_isa())", "")
    assert result.stdout.strip() == es_core.supported_isas()[0], result.stderr


def test_an_unknown_instruction_set_in_the_environment_is_refused_with_the_choices() -> None:
    result = run_python("import es_core; es_core.current_isa()", "v9")
    assert result.returncode == 1
    assert f"ValueError: FEDLEARN_ISA: expected one of {', '.join(es_core.supported_isas())}" in result.stderr


def test_the_process_may_use_at_least_one_processor() -> None:
    assert 1 <= es_core.usable_processors() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no processes")
def test_a_process_bound_to_one_processor_uses_one() -> None:
    result = run_python(
        "import os, es_core\n"
        "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])\n"
        "print(es_core.usable_processors())",
        "",
    )
    assert result.stdout.strip() == "1", result.stderr
