"""The service document, stated once: models, codes, limits, endpoints, and what it leaves open.

Every name, range, choice, code and limit of the document stands in this room and nowhere else; client,
service, batch and command line read them from here. The room imports nothing of ours. One module per chapter:

- `speech`, `changer`, `translate`, `auth`, `dubbing`, `socket`: one pydantic model per table of the document
- `additions`: one model per answer of our own addresses, such as the limits
- `codes` (section 7), `limits` (sections 4.1 and 8), `endpoints` (section 4)
- `pauses`, `billing`, `locales`, `check`: what is done with a request before it is sent or served
- `placeholders`: the code in texts for people, such as placeholders and tags
- `chosen`: every point the document leaves open, our choice and its reason
- `facts`: the document read back from the models; `render`: the same as Markdown, JSON Schema and OpenAPI
- `deprecation`: words for what the document has given up
"""
