"""Files, requests and scripts of other systems' users, as they type them."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CONFIG = FOLDER / "config.json"
JOBS: dict[str, Any] = json.loads((FOLDER / "jobs.json").read_text())
