"""Replicated numbers are one and the same from every compiler, instruction set, thread count and arithmetic.

What GCC makes of the project's own flags is the installed extension, in test_installed.py.
"""

from collections.abc import Callable

import pytest

import es_core

Digests = dict[str, str]
Driver = Callable[[str], str]
Emulator = Callable[[str], list[str]]
Printed = Callable[..., Digests]
Tool = Callable[[str], str]

ARITHMETICS = ("flush-to-zero", "downward", "upward", "toward-zero")


@pytest.fixture(params=["v4-vnni", "v4", "v3-vnni", "v3", "base"])
def isa(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name not in es_core.supported_isas():
        pytest.skip(f"this processor has no {name}")
    return name


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("build", ["gcc -O0", "clang", "clang -O0"])
def test_every_build_comes_to_the_golden_digests(
    build: str, isa: str, threads: str, driver: Driver, printed: Printed, golden_of_driver: Digests
) -> None:
    assert printed(driver(build), threads, FEDLEARN_ISA=isa) == {"isa": isa} | golden_of_driver


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("build", ["gcc -O0", "clang"])
def test_the_arithmetic_of_the_host_process_does_not_matter(
    build: str, isa: str, arithmetic: str, driver: Driver, printed: Printed, golden_of_driver: Digests
) -> None:
    assert printed(driver(build), "2", arithmetic, FEDLEARN_ISA=isa) == {"isa": isa} | golden_of_driver


def test_signs_one_at_a_time_come_to_the_golden_digests(
    driver: Driver, printed: Printed, golden_of_driver: Digests
) -> None:
    assert printed(driver("clang"), "naive", FEDLEARN_ISA="base") == {"isa": "base"} | golden_of_driver


@pytest.mark.parametrize(("processor", "chosen"), [("Nehalem", "base"), ("Haswell", "v3")])
@pytest.mark.parametrize("build", ["gcc -O0", "clang"])
def test_an_older_processor_comes_to_the_golden_digests(
    build: str,
    processor: str,
    chosen: str,
    driver: Driver,
    emulator: Emulator,
    printed: Printed,
    golden_of_driver: Digests,
) -> None:
    assert printed(*emulator(processor), driver(build), "2") == {"isa": chosen} | golden_of_driver


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "threads"), [("dot", "1"), ("dot", "2"), ("dot", "3"), ("base", "2")])
@pytest.mark.parametrize("build", ["aarch64", "aarch64 -O0"])
def test_aarch64_comes_to_the_golden_digests(
    build: str, chosen: str, threads: str, driver: Driver, tool: Tool, printed: Printed, golden_of_driver: Digests
) -> None:
    found = printed(tool("qemu-aarch64"), driver(build), threads, FEDLEARN_ISA=chosen)
    assert found == {"isa": chosen} | golden_of_driver


@pytest.mark.parametrize(("processor", "chosen"), [("cortex-a53", "base"), ("neoverse-n1", "dot")])
def test_aarch64_processor_takes_the_best_that_it_has(
    processor: str, chosen: str, driver: Driver, tool: Tool, printed: Printed, golden_of_driver: Digests
) -> None:
    found = printed(tool("qemu-aarch64"), "-cpu", processor, driver("aarch64"), "2")
    assert found == {"isa": chosen} | golden_of_driver


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_the_arithmetic_of_an_aarch64_process_does_not_matter(
    arithmetic: str, driver: Driver, tool: Tool, printed: Printed, golden_of_driver: Digests
) -> None:
    assert printed(tool("qemu-aarch64"), driver("aarch64"), "2", arithmetic) == {"isa": "dot"} | golden_of_driver


@pytest.mark.parametrize("isa", ["v3"], indirect=True)
def test_contraction_would_change_the_optimizers_and_nothing_else(
    isa: str, driver: Driver, printed: Printed, golden_of_driver: Digests
) -> None:
    contracted = printed(driver("gcc with contraction"), "1", FEDLEARN_ISA=isa)
    changed = {name for name, digest in golden_of_driver.items() if contracted[name] != digest}
    assert changed == {"adam", "sgd", "adam_with_decay", "sgd_with_decay", "pull_towards"}
