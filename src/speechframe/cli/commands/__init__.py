"""The commands of `speechframe`. All verbs (functions such as `generate`) except `dub` share one module."""
