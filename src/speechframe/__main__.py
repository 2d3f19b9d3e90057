"""Run the command ``speechframe`` as ``python -m speechframe``."""

import sys

from speechframe.cli import main

if __name__ == "__main__":
    sys.exit(main())
