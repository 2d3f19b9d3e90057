"""The service document, served: an aiohttp application with real engines in worker processes.

The way of a request, in the order things are looked at; the first that does
not fit is the answer:

1.  HTTP itself (400), header section within the time limit (408)
2.  stopping (503)
3.  path (404), method (405)
4.  key (403; on the token call 400 and 401)
5.  body: declared size (400), arrival within the time limit (408), size while reading (400)
6.  JSON, then fields, then voice, locale and style, then headers of ours (400)
7.  slot: requests of this key in flight, above its concurrency (429). Only now is a slot held, so
    that neither a stalled body nor a request that could never succeed takes one
8.  queue over all keys (503)
9.  idempotency record with another body (400), quota (402): one transaction that reserves
10. synthesis in a worker: what only the engine sees (400), crash or hang (500)
11. settle: balance, shelf index and idempotency record in one transaction, then the answer: audio from disk,
    in pieces

The voice changer looks at its form in steps 5 and 6, which it reads to disk; over the cap it waits in a
short queue before it is refused (503) in step 7; between 8 and 9 it fetches a ``file_url`` and has the
clip decoded in a worker (400), because the clip's length is its price. What section 7.2 does not list for
it is told otherwise: a stalled body is 400 there.

A dubbing job is created by steps 1 to 6, with a form like that of the voice changer, whose medium is looked
at in a worker (400); what it costs is set aside when its turn in the queue comes, and settled when its first
version is finished. Dubbing calls answer only 200, 400, 403, 500 and 503: a stalled body, a job and a project
that are not there are 400.

Nothing else is billed before step 11, and everything reserved is given back when it is not reached: an
error, a client that went away, or a service that was killed.

Files: ``app`` puts the room together, ``connection`` is HTTP below the
application, ``readers`` who reads what is sent, ``middleware`` errors and trace ids;
``body`` ``forms`` ``multipart`` what arrives, ``fetch`` what is fetched, ``guard`` where anything may go;
``generate`` ``convert`` ``voices`` ``auth`` ``limits`` ``audio`` the calls; ``database``
``keys`` ``quota`` ``idempotency`` ``shelf`` ``uploads`` ``owners`` what is kept;
``dub_create`` ``dub_calls`` the calls of dubbing, ``dub_languages`` what it can do, ``dub_jobs`` its
rows, ``dub_queue`` its processes and folders, ``webhooks`` who is told, ``background`` how both work;
``slots`` ``workers`` ``worker`` what runs; ``config`` and ``serve`` the way in.
"""
