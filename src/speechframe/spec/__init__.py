"""The rules of the service document, which describes the HTTP and WebSocket interface of the service.

Only this package contains the names, ranges, codes and limits of the document. Client, service, batch and
command line import them from here. The package imports no other package of speechframe. Its modules are:

- `speech`, `changer`, `translate`, `auth`, `dubbing`, `socket`: a pydantic model for each of its tables
- `additions`: models of the answers of addresses that the document does not have
- `codes` (section 7), `limits` (sections 4.1 and 8), `endpoints` (section 4)
- `texts`, `billing`, `locales`, `check`: checks and prices of a request, for client and service
- `placeholders`: search for code in texts, such as placeholders and tags
- `chosen`: points that the document leaves open, with our choices; docstrings quote them as (chosen: <id>)
- `facts`: the rules of each field, read back from the models
- `pages`: the document as Markdown, JSON Schema and OpenAPI
- `deprecation`: warnings about deprecated fields
- `fields`: base classes and value types of the models
"""
