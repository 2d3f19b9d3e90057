"""Listening tests: who hears what in which order, what may be voted when, and votes that survive anything.

``sources`` finds what can be compared; ``stimuli`` makes it equally loud and hides what it is; ``design``
draws who hears what; ``questions`` is what is asked before, ``session`` the rules of a vote; ``votes`` keeps
votes on disk; ``test`` puts them together. Everything a listener's page gets comes from
:meth:`test.Test.plan`, everything it says goes to :meth:`test.Test.answer`: a notebook, a served page and a
page that is one file are the same to it.
"""
