"""``python -m cli``: the command ``greencrawl``."""

from gevent import monkey

monkey.patch_all()

import sys

from cli.main import main

sys.exit(main())
