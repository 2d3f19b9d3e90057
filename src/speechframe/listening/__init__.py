"""Run blind listening tests. Listeners rate or compare clips without names of voices or systems.

``sources`` collects the clips. ``stimuli`` makes them equally loud and gives them names that reveal nothing.
``design`` draws the trials (pages with one vote each) of every listener. ``questions`` checks the questions
before the first trial. ``session`` checks a vote. ``votes`` and ``ballots`` store votes on disk. ``making``
makes a test of all these parts, and ``test`` holds the test.

A page in a notebook or of ``server`` gets its content from :meth:`test.Test.plan`, and sends its messages to
:meth:`test.Test.reply`. An offline page contains the same content, and saves its votes as a file. The module
``offline`` reads such files.
"""
