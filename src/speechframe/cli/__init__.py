"""The command ``speechframe``, which runs the verbs and shows their results in shells and scripts.

The options of a verb are read from its signature and docstring, so every verb is a command, too. The module
of a command is imported only when that command runs, because Arrow and the web client take long to load.
"""

from speechframe.cli.app import main

__all__ = ["main"]
