"""What spark-submit starts."""

from __future__ import annotations

import sys

from spark_runtime.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
