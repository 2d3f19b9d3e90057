"""Compute scores, preferences and their intervals from the votes of a listening test.

`listening` joins the parts of an analysis, which are `scores`, `preference`, `discrimination`, `screening`
and `spread`. `power` plans a test, and `plots` draws results. Nothing here sends a request to a service.
"""
