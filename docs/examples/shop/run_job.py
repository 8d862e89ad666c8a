"""Stands for a job of the shop: does nothing, and fails where a file of its name says so."""

import json
import sys
from pathlib import Path

spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
broken = Path(f"{spec['job']['name']}.broken")
if broken.exists():
    sys.exit(broken.read_text(encoding="utf-8"))
