"""Tests for the authors of engines. Each kind of engine has a class of tests.

In a test module of your package::

    from my_package import MySpeaker
    from speechframe.testing.suites import SpeakerSuite

    class TestMySpeaker(SpeakerSuite):
        engine = MySpeaker

pytest runs these tests beside yours. Speech engines declare their abilities in ``capabilities``. A test of an
ability that the engine lacks passes without a call.
"""

import sys

if "pytest" in sys.modules:
    import pytest

    # pytest shows the values in a failed assert only for the modules that it rewrites.
    pytest.register_assert_rewrite(
        *(
            f"{__name__}.{module}"
            for module in ("changers", "common", "recognisers", "speakers", "translators")
        )
    )

from speechframe.testing.suites.changers import ChangerSuite
from speechframe.testing.suites.recognisers import RecogniserSuite
from speechframe.testing.suites.speakers import SpeakerSuite
from speechframe.testing.suites.translators import TranslatorSuite

__all__ = ["ChangerSuite", "RecogniserSuite", "SpeakerSuite", "TranslatorSuite"]
