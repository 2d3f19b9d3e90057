"""What runs and votes say: spending, quota and bills, and statistics of listening tests.

Nothing here talks to a service. `listening` joins the chapters of a listening test (`scores`, `preference`,
`discrimination`, `screening`, `spread`, `power`, `plots`).
"""
