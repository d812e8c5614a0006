"""The Python drivers import each other from their own folder; so do the tests of what they
share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "drivers"))
