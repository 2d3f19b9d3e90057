"""What runs and votes say: statistics of listening tests, and words found in audio that came without them.

Nothing here talks to a service. `listening` joins the chapters of a listening test (`scores`, `preference`,
`discrimination`, `screening`, `spread`, `power`, `plots`); `alignment` lays a recogniser's words upon a text.
"""
