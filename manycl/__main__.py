"""``python -m manycl``: the command line."""

import sys

from manycl.cli import main

sys.exit(main())
