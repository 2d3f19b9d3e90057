"""Run blind listening tests. Every listener gets a balanced random order, and no stored vote is lost.

``sources`` collects the clips. ``stimuli`` makes them equally loud and gives them names that reveal nothing.
``design`` draws the trials of each listener. ``questions`` has the questions before the first trial.
``session`` has the rules of a vote. ``votes`` and ``ballots`` store votes on disk. ``test`` joins all parts.

A listener's page gets its content from :meth:`test.Test.plan` and sends its messages to
:meth:`test.Test.answer`. Pages in a notebook, pages of a server and offline pages work the same way.
"""
