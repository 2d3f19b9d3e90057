"""Show widgets in notebooks that play clips, compare voices, review rows and watch runs.

This needs ``pip install 'speechframe[notebook]'``. A widget is a Python class with a few typed traits
(attributes that Python and the page share), and one JavaScript module in `page/static`. Functions for users,
such as `play`, are in the same file as their class. If a page cannot run scripts, a widget shows plain HTML.
Widgets do not load anything from the network. Audio is sent to the page when it is played.
"""

try:
    import anywidget as _anywidget
except ImportError as error:
    raise ImportError("widgets need anywidget: pip install 'speechframe[notebook]'") from error

from speechframe.widgets.browser import DatasetBrowser, browse
from speechframe.widgets.comparison import VoiceComparison, compare_voices
from speechframe.widgets.dashboard import RunDashboard, watch
from speechframe.widgets.dub_player import DubPlayer, review
from speechframe.widgets.listening import ListeningTest, listening_test
from speechframe.widgets.player import ClipPlayer, play
from speechframe.widgets.stream_player import StreamPlayer
from speechframe.widgets.voice_gallery import VoiceGallery, gallery

__all__ = [
    "ClipPlayer",
    "DatasetBrowser",
    "DubPlayer",
    "ListeningTest",
    "RunDashboard",
    "StreamPlayer",
    "VoiceComparison",
    "VoiceGallery",
    "browse",
    "compare_voices",
    "gallery",
    "listening_test",
    "play",
    "review",
    "watch",
]

del _anywidget
