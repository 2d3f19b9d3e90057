"""The shipped voice changer, held to what every voice changer must do."""

from speechframe.engines.world import WorldChanger
from speechframe.testing.suites import ChangerSuite


class TestWorld(ChangerSuite):
    engine = WorldChanger
