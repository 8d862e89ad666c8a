"""`python -m lineage_backfill` is the command line."""

import sys

from lineage_backfill.cli.main import main

sys.exit(main())
