"""Run the service as a separate process: ``python -m speechframe.local.service``."""

import sys

from speechframe.local.service.serve import main

if __name__ == "__main__":
    sys.exit(main())
