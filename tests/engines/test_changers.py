"""The shipped voice changer, held to what every voice changer must do."""

import pytest

from speechframe.local.engines.world.changer import WorldChanger
from speechframe.testing.suites import ChangerSuite


# What is its own is tested at every commit in test_world and test_world_voices.
@pytest.mark.slow
class TestWorld(ChangerSuite):
    engine = WorldChanger
