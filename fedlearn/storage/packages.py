"""Names the package to install where a module is missing, which fedlearn or a user's file imports."""

from importlib.util import find_spec

_EXTRAS = {
    "datasets": "datasets",
    "gymnasium": "gym",
    "matplotlib": "plot",
    "mujoco": "mujoco",
    "onnx": "onnx",
    "ray": "ray",
    "tensorboard": "tensorboard",
    "tokenizers": "bpe",
    "torch": "torch",
    "transformers": "transformers",
}
"""Extras of fedlearn that bring a package, in a version that fits."""

_DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Names of packages that differ from those of their modules."""


def add_remedy(error: ModuleNotFoundError, importer: str) -> None:
    """Adds the package to install to an error; `importer` names the importing file, as a user knows it.

    An error that says more than Python's own, or that is about a part of an installed package, stays as it is.
    """
    name = error.name or ""
    package = name.partition(".")[0]
    if error.msg != f"No module named {name!r}":
        return
    if package == "es_core":
        remedy = (
            "this is the folder of sources, which lack the compiled core and come before an installed package; start "
            "Python in another folder or with -P, or install them in place: pip install -e ."
        )
    elif package != name and find_spec(package) is not None:
        return
    elif package in _EXTRAS:
        remedy = f"install it: pip install 'fedlearn[{_EXTRAS[package]}]'"
    else:
        remedy = f"install it: pip install {_DISTRIBUTIONS.get(package, package)}"
    error.msg = f"{importer}: expected the module {name}, which is missing; {remedy}"
