"""Compute scores, preferences and their intervals from the votes of a listening test.

The module `listening` contains the whole analysis. Its parts are in `scores`, `preference`, `discrimination`,
`screening` and `spread`. `power` plans a test, and `plots` draws results. Nothing here sends a request to a
service.
"""
