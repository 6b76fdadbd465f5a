"""``python -m ringline.cli`` is the command too."""

import sys

from ringline.cli.app import main

sys.exit(main())
