"""`python -m shunter.cli` is `shunter`."""

import sys

from shunter.cli import main

sys.exit(main())
