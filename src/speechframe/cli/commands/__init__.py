"""The commands of `speechframe`: one module each, and one for all verbs."""
