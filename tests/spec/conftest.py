"""Settings of the tests of the document."""

from hypothesis import settings

# Several test runs share a machine here: how long one example takes says nothing about the code.
settings.register_profile("speechframe", deadline=None)
settings.load_profile("speechframe")
