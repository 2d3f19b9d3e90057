"""``python -m speechframe``: the same as the command ``speechframe``."""

import sys

from speechframe.cli import main

if __name__ == "__main__":
    sys.exit(main())
