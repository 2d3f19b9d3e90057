"""The shipped voice changer, held to what every voice changer must do."""

from speechframe.engines.world import WorldChanger
from speechframe.testing.suites.changers import ChangerSuite


class TestWorld(ChangerSuite):
    changer = WorldChanger
