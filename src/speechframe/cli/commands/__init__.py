"""The commands of `speechframe`. Each has a module, and all verbs share one."""
