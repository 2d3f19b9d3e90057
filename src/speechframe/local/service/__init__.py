"""The service document as an aiohttp application, with real engines in worker processes.

Each line below is one step of a request, with the HTTP status of its refusal in brackets. The first step
that fails determines the answer:

1.  Check that the bytes are HTTP (400), and that the headers arrive within the time limit (408).
2.  Check that the service is not stopping (503).
3.  Check the path (404) and the method (405).
4.  Check the key (403; the token call answers 400 and 401).
5.  Read the body: check the declared size (400), the time (408), and the size while reading (400).
6.  Check the JSON, then the fields, then voice, locale and style, then our own headers (400).
7.  Take a slot. A key has as many slots as it may have requests in flight (429). Stalled bodies and invalid
    requests never take a slot, because they fail before this step.
8.  Join the queue, which the requests of all keys share (503).
9.  Reserve the price in one transaction. Fails if the idempotency key came with another body (400), or if
    the quota is used up (402).
10. Synthesise in a worker. Fails if only the engine can find the fault (400), or if the worker crashes or
    takes too long (500).
11. Settle: one transaction writes the balance, the index of audio files and the idempotency record. Then
    the answer is sent, with audio from disk in pieces.

The voice changer reads its form to disk in steps 5 and 6. It refuses a stalled body with 400, because
section 7.2 of the document (the service's specification) does not list 408 for this call. If all slots of
the key are taken in step 7, the request waits in a short queue before it is refused (503). The price depends
on the length of the clip. So between steps 8 and 9 the service fetches the clip from ``file_url``, if the
request contains one, and a worker decodes the clip (400).

A dubbing job is created by steps 1 to 6, with a form like that of the voice changer. A worker reads the
length of the media file (400). The price is reserved when the job leaves the queue, and settled when the
first version of the dub is finished. Dubbing calls answer only 200, 400, 403, 500 and 503. So they refuse a
stalled body, an unknown job and an unknown project with 400.

Nothing is billed before step 11. If a request does not reach step 11, its reservation is released. This also
holds after an error, after the client disconnects, and after the service is killed.

Folders: ``http`` contains the steps that all calls share. ``speech`` and ``dubbing`` contain the calls,
``books`` the database, and ``workers`` the worker processes. Files: ``app`` maps addresses to handlers,
``state`` contains the parts that handlers share, and ``background`` runs work without a request.
``config`` and ``folders`` read the configuration, and ``serve`` starts the service.
"""
