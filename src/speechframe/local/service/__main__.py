"""``python -m speechframe.local.service``: the service as a process of its own."""

import sys

from speechframe.local.service.serve import main

if __name__ == "__main__":
    sys.exit(main())
