"""The runner and its loop are kept byte for byte as they were given, and import each other by their plain names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
