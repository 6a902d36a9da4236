from importlib import import_module

import pytest

import fedlearn
from fedlearn.storage.packages import add_remedy


def told(error: ModuleNotFoundError) -> str:
    add_remedy(error, "digits.py")
    return str(error)


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("torch", "pip install 'fedlearn[torch]'"),
        ("gymnasium", "pip install 'fedlearn[gym]'"),
        ("sklearn", "pip install scikit-learn"),
        ("nobody_wrote_this", "pip install nobody_wrote_this"),
    ],
)
def test_what_is_missing_has_its_remedy(module: str, remedy: str) -> None:
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert told(error) == f"digits.py: expected the module {module}, which is missing; install it: {remedy}"


def test_what_python_says_of_a_missing_module_is_recognized() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        import_module("nobody_wrote_this")
    assert told(raised.value).endswith("pip install nobody_wrote_this")


def test_part_that_an_installed_package_lacks_is_no_package_to_install() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        import_module("numpy.nobody_wrote_this")
    assert told(raised.value) == "No module named 'numpy.nobody_wrote_this'"


def test_message_that_says_more_is_kept() -> None:
    said = "torch: install it by hand"
    assert told(ModuleNotFoundError(said, name="torch")) == said


def test_public_name_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fedlearn._PLACES, "supervised", "nobody_wrote_this")
    with pytest.raises(ModuleNotFoundError, match=r"^fedlearn.supervised: expected the module .* pip install nobody"):
        _ = fedlearn.supervised
