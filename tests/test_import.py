"""What importing the library costs whoever only wants a part of it."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def test_importing_the_library_brings_neither_torch_nor_numpy_along() -> None:
    program = "import sys, fedlearn; print(sorted({'torch', 'numpy', 'gymnasium', 'rich'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
