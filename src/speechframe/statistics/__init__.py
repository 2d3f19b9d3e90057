"""Statistics of listening tests: from votes to scores, preferences and their intervals.

Nothing here talks to a service. `listening` joins the chapters of a listening test (`scores`, `preference`,
`discrimination`, `screening`, `spread`, `power`, `plots`).
"""
