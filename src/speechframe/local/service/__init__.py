"""The service document as an aiohttp application, with real engines in worker processes.

A request passes these steps. The first step that fails gives the answer:

1.  HTTP itself (400), and the header section within the time limit (408)
2.  the service is not stopping (503)
3.  path (404) and method (405)
4.  key (403; the token call answers 400 and 401)
5.  body: declared size (400), arrival within the time limit (408), size while reading (400)
6.  JSON, then fields, then voice, locale and style, then our own headers (400)
7.  slot: requests of this key in flight, up to its concurrency (429). The slot is taken only here, so
    stalled bodies and invalid requests take no slot
8.  queue of all keys (503)
9.  idempotency record with another body (400), quota (402). One transaction reserves the price
10. synthesis in a worker: faults that only the engine finds (400), crash or timeout (500)
11. settlement: one transaction writes the balance, the index of audio files and the idempotency record.
    Then the answer is sent, with audio from disk in pieces

The voice changer reads its form to disk in steps 5 and 6. A stalled body is 400 there, because section 7.2
does not list 408 for it. If the key's concurrency is reached in step 7, the request waits in a short queue
before it is refused (503). Between steps 8 and 9 the service fetches a ``file_url``, and a worker decodes
the clip (400), because the price depends on the length of the clip.

A dubbing job is created by steps 1 to 6, with a form like that of the voice changer. A worker reads the
length of the medium (400). The price is reserved when the job leaves the queue, and settled when the first
version of the dub is finished. Dubbing calls answer only 200, 400, 403, 500 and 503. So a stalled body, an
unknown job and an unknown project are 400.

Nothing is billed before step 11. If a request does not reach step 11, its reservation is released: after an
error, after the client disconnected, and after the service was killed.

Folders and files: ``http`` contains the steps that all calls share, ``speech`` and ``dubbing`` the calls,
``books`` the database, and ``workers`` the worker processes. ``app`` maps addresses to handlers, ``state``
contains the parts that handlers share, and ``background`` runs the service's own work. ``config`` and
``folders`` read the configuration, and ``serve`` starts the service.
"""
