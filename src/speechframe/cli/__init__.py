"""The command ``speechframe``, which offers the functions of the package in shells and scripts.

Every verb (a public function that makes something, such as `generate`) is also a command. The options of its
command come from its signature and docstring. Only the module of the named command is imported, because Arrow
and the web client take long to load.
"""

from speechframe.cli.app import main

__all__ = ["main"]
