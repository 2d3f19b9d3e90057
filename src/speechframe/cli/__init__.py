"""The command ``speechframe``: the verbs and what goes with them, for shells and scripts.

A verb's options are read from its signature and docstring, so a verb that is
declared anywhere is a command too. Nothing heavy is imported before it is
known which command is meant.
"""

from speechframe.cli.app import main

__all__ = ["main"]
