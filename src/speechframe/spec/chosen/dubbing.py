"""Choices for dubbing, about jobs, projects, links and webhooks."""

from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.speech import MAX_TEXT_CHARACTERS, SHELF_SECONDS
from speechframe.spec.fields._range import Range

DUB_LINK_SECONDS = 72 * 3600
"""Seconds that an ended job without a project is kept, with its links."""
PAGE_DEFAULT = 20
"""Projects on a page by default."""
PAGE_LIMIT = Range(1, 100, PAGE_DEFAULT)
"""Projects on a page."""
WEBHOOK_TRIES = 5
"""Deliveries of a webhook that is not answered with a 2xx status."""
WEBHOOK_SECONDS = 600
"""Time over which the deliveries of a webhook are spread."""
WEBHOOK_ID_HEADER = "X-Webhook-Id"
"""The same in each delivery of one webhook, which may come more than once."""
WEBHOOK_TIMESTAMP_HEADER = "X-Signature-Timestamp"
"""Unix time in milliseconds."""
WEBHOOK_SIGNATURE_HEADER = "X-HMAC-Signature"
"""Hex HMAC-SHA256 of raw body, a dot and the timestamp."""
ORIGINAL_GAIN_DB = Range(-60.0, 0.0, -18.0)
"""Level of the original while it is dubbed, in dB."""
DEFAULT_DUB_CREDITS = 36_000
"""Dubbing credits of a key in a billing cycle by default, for ten hours into one locale."""
MAX_TARGET_LOCALES = 200
"""Target locales of a job or a project. There are fewer locales that anything is dubbed into."""
MAX_PROJECT_NAME_CHARACTERS = 200
"""Characters of the name of a project: a line of a list."""
MAX_PROJECT_DESCRIPTION_CHARACTERS = 2_000
"""Characters of the description of a project: a page of text."""
MAX_PROJECT_PAGE_BYTES = 1024 * 1024
"""Size of a page of projects. A page with longer texts from earlier versions ends sooner."""
MAX_CAST = 200
"""Speakers of a script that have a voice named for them."""
MAX_CORRECTIONS = 1_000
"""Utterances that are corrected in one call."""
MAX_DUB_SECONDS = 4 * 3600
"""The longest medium that is dubbed."""
DUB_CHARACTERS_PER_SECOND = 40
"""Characters of a dub's text for each second of its medium. Fast speech has 20 to 25."""
DUB_TEXT_LEAST_SECONDS = 5
"""A shorter medium may have the text of one of this length."""
DUB_VOICES_AT_ONCE = 8
"""The cues of a script together last at most so many times as long as the medium."""
DUB_NAMED_LINES = 3
"""Fewest lines of a script that begin with names, before names that may be words count as speakers."""
DUB_NAMED_SHARE = 0.25
"""Least number of such lines, as a share of the cues."""
DUB_CORRECTIONS = 100
"""Corrections of a reviewed job for each of its target locales."""
DUB_WAITING_JOBS = 100
"""Jobs of a key that may wait or be under way."""
DUB_FAILED_JOBS = 1_000
"""Failed jobs of a key that are kept, the newest."""
DUB_PROJECT_JOB_SECONDS = 30 * 24 * 3600
"""Seconds that an ended job of a project is kept."""
DUB_PROJECTS = 1_000
"""Projects of a key."""
DUB_SPEED = Range(0.85, 1.3)
"""Speed of a line, where 1 is the voice's own speed."""
DUB_SPEED_STEP = 0.15
"""Largest difference of speed between two lines in a row. A smooth 1.2 sounds better than 1.05 beside 1.5."""
DUB_FULL_SLOT = 0.95
"""The share of its slot that a line fills without being slowed down."""
DUB_EARLY_SECONDS, DUB_LATE_SECONDS = 0.045, 0.125
"""Seconds that a line may start too early or too late without notice (ITU-R BT.1359)."""
CUE_LINES, CUE_LINE_CHARACTERS = 2, 42
"""Lines of a cue and characters of a line, always."""
CUE_CHARACTERS_PER_SECOND = 20
"""The fastest that a cue is to be read."""
CUE_SECONDS = Range(5 / 6, 7.0)
"""Seconds that a cue is shown."""

POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "dubbing-key",
        "Key of the dubbing calls",
        "May differ from the speech key; it has its own environment variable.",
        "The document speaks of the dubbing API key.",
        "sure",
    ),
    OpenPoint(
        "dubbing-locales",
        "Spelling of dubbing locales",
        "Underscore (fr_FR) in dubbing, hyphen (fr-FR) in speech; both are accepted, answers use the "
        "house spelling of each, one function normalises.",
        "Both are seen on the wire, and people copy from one side to the other.",
        "sure",
    ),
    OpenPoint(
        "target-locales-form",
        "`target_locales` in a multipart form",
        "A repeated field; one comma-separated value is read too.",
        "Repeating is what public clients do; the comma is what people type.",
        "sure (repeated), ours (comma)",
    ),
    OpenPoint(
        "dubbing-defaults",
        "dubbing_type of a job without project; default priority",
        "AUTOMATED; NORMAL",
        "The answer requires both fields.",
        "likely",
    ),
    OpenPoint(
        "job-status",
        "Status values of a dubbing job",
        "QUEUED, IN_PROGRESS, then one of COMPLETED, PARTIALLY_COMPLETED, FAILED; IN_REVIEW, not terminal, "
        "when the first version of a QA job is ready. An unknown value is not terminal, a partial one is.",
        "Clients that do not know the partial state poll for ever; a new value must not end a wait too "
        "early.",
        "sure (COMPLETED, FAILED, that a partial state exists), guess (its spelling)",
    ),
    OpenPoint(
        "download-status",
        "Status of a download detail",
        "The same words, per locale.",
        "A second vocabulary for the same states would help nobody.",
        "likely",
    ),
    OpenPoint(
        "failure-code",
        "`failure_code`",
        "INSUFFICIENT_CREDITS, CREDITS_EXHAUSTED, LANGUAGE_NOT_SUPPORTED, SPEECH_NOT_PRESENT, "
        "SOURCE_LANGUAGE_MISMATCH, WEBHOOK_ERROR, SERVER_ERROR",
        "Public clients carry these names.",
        "sure (names), likely (use)",
    ),
    OpenPoint(
        "link-life",
        "Life of result links",
        f"{SHELF_SECONDS // 3600} h for audioFile, {DUB_LINK_SECONDS // 3600} h for jobs without a "
        f"project, {DUB_PROJECT_JOB_SECONDS // 86400} days for jobs of a project, from their last end. Then "
        f"the job is removed and unknown. Of failed jobs a key keeps the newest {DUB_FAILED_JOBS:,}.",
        "A dataset may not depend on a link, and a disk is finite.",
        "likely (audioFile), sure (dubbing)",
    ),
    OpenPoint(
        "webhook",
        "Webhook delivery",
        'POST {"eventName": "DUB_JOB", "data": job status} when a job ends. With a secret: '
        f"{WEBHOOK_TIMESTAMP_HEADER} (Unix ms) and {WEBHOOK_SIGNATURE_HEADER} = hex HMAC-SHA256(secret, "
        f'raw body + "." + timestamp). {WEBHOOK_TRIES} tries over {WEBHOOK_SECONDS // 60} minutes, each with '
        f"the same {WEBHOOK_ID_HEADER}, until one is answered with a 2xx status; redirects are not "
        "followed; a receiver that never answers does not fail the job. A QA job has one more each time "
        "it goes into review. A webhook_url whose host is not on the public Internet is refused with 400 "
        "when the job is created, unless the operator allows such addresses. A host name that cannot be "
        "resolved at that moment is accepted, because it may resolve when the job ends.",
        "Public receivers check exactly this; the timestamp inside the signature stops replays.",
        "sure (shape, signature), guess (tries)",
    ),
    OpenPoint(
        "project-page",
        "Page of the project list",
        f"limit {PAGE_LIMIT}, default {PAGE_LIMIT.default}; next is an opaque string. A page ends before "
        f"{MAX_PROJECT_PAGE_BYTES // 1024**2} MB, too, unless its first project is larger.",
        "Small enough to answer at once.",
        "guess",
    ),
    OpenPoint(
        "dubbing-sizes",
        "How much a dubbing call may name",
        f"{MAX_TARGET_LOCALES} target locales, {MAX_CAST} voices of a cast, {MAX_CORRECTIONS:,} corrected "
        f"utterances; a project has a name of {MAX_PROJECT_NAME_CHARACTERS} and a description of "
        f"{MAX_PROJECT_DESCRIPTION_CHARACTERS:,} characters. 400 beyond. Older projects stay as they are.",
        "Each entry is looked up while no other request is served, and a list shows a hundred projects.",
        "ours",
    ),
    OpenPoint(
        "cursor",
        "Paging while projects are created",
        "next is a cursor, not an offset: nothing is shown twice or skipped.",
        "An offset shifts when something new comes in front.",
        "ours",
    ),
    OpenPoint(
        "update-while-running",
        "Project update while jobs run",
        "Running jobs keep their targets.",
        "What was asked for and billed does not change underway.",
        "ours",
    ),
    OpenPoint(
        "dub-review",
        "How a QA job is reviewed",
        "GET and PUT /v1/dub/jobs/{job_id}/utterances: who says what, when and how fast; texts and voices "
        "that are sent back are spoken anew, and only these. The first version is paid. Corrections are "
        f"free until the job is removed, up to {DUB_CORRECTIONS} for each target locale.",
        "The document names a QA type and no call for it.",
        "ours",
    ),
    OpenPoint(
        "dub-script",
        "What a job may be told beside its medium",
        "script (SRT or WebVTT, speakers as `NAME: ` or `<v NAME>`) in script_locale, cast (speaker to voice "
        f"id) and original_gain_db ({ORIGINAL_GAIN_DB}, default {ORIGINAL_GAIN_DB.default:g}).",
        "Who has the script of a film need not have it guessed.",
        "ours",
    ),
    OpenPoint(
        "dub-script-reading",
        "What of a script is spoken",
        "All text, without the names of speakers, sounds in brackets, songs between notes, and lines that "
        "automatic captions repeat. A name in capitals, a numbered speaker, a name in brackets with a colon "
        "and a name of the cast are speakers. Other names are speakers only if they begin at least "
        f"{DUB_NAMED_LINES} lines together, and {DUB_NAMED_SHARE:.0%} of the number of cues. A cue without "
        "readable times is skipped. Warnings name the speakers and the lines.",
        "Subtitles have no rule for speakers and sounds, and players show files with odd cues.",
        "ours",
    ),
    OpenPoint(
        "audio-track",
        "Audio track of a medium with several",
        "The one in source_locale, or else the default one, or else the first; commentaries come last. Times "
        "count from the first sound or picture of the medium, and so does its length.",
        "Players choose a track and count time in this way.",
        "ours",
    ),
    OpenPoint(
        "dub-subtitles",
        "Subtitles as WebVTT",
        "download_vtt_url beside download_srt_url.",
        "Browsers show WebVTT alone.",
        "ours",
    ),
    OpenPoint(
        "dub-progress",
        "How far a job is",
        "Each download detail names the step its locale is at.",
        "A film takes minutes, and a word that never changes looks like a service that hangs.",
        "ours",
    ),
    OpenPoint(
        "dub-credits",
        "Credits of a dubbing key",
        f"{DEFAULT_DUB_CREDITS:,} a billing cycle. They are set aside when a job is taken and used for the "
        "locales that succeed; a started credit counts whole in credits_used.",
        "Two jobs may not spend the same credits, and nobody pays for what failed.",
        "ours",
    ),
    OpenPoint(
        "dub-text",
        "Longest text of a dub",
        f"The cues of a script that begin within the medium, and a dub with its corrections, have at most "
        f"{DUB_CHARACTERS_PER_SECOND} characters for each second of the medium, which counts as at least "
        f"{DUB_TEXT_LEAST_SECONDS} seconds. One cue has at most {MAX_TEXT_CHARACTERS:,}. Together the cues "
        f"last at most {DUB_VOICES_AT_ONCE} times as long as the medium. 400 beyond.",
        "The price is that of the medium. Text that nobody can speak in that time would be free work.",
        "ours",
    ),
    OpenPoint(
        "dub-turns",
        "Whose dub is made first",
        "The highest priority first, but each lower one that waits has every fifth start. Of one priority "
        "the key is next whose last start is longest ago, and of that key the oldest job. A key has at most "
        f"{DUB_WAITING_JOBS} jobs that wait or are under way. 503 with Retry-After beyond.",
        "A key with many jobs must not keep the others waiting, nor fill the disk.",
        "ours",
    ),
    OpenPoint(
        "project-count",
        "Projects of a key",
        f"{DUB_PROJECTS:,}. A new one then takes the place of the one that was longest unused, if that was "
        f"for {DUB_PROJECT_JOB_SECONDS // 86400} days. 400 otherwise.",
        "The document has no call that removes a project.",
        "ours",
    ),
    OpenPoint(
        "dub-max-credits",
        "The most that a job may cost",
        "A job may carry max_credits. One that costs more by the service's own measurement is refused with "
        'status 400, and nothing is billed. GET /v1/limits announces the field as "max_credits": true in '
        '"dubbing".',
        "Nobody should pay more than they planned because a medium is longer than they thought.",
        "ours",
    ),
    OpenPoint(
        "dub-length",
        "Longest medium",
        f"{MAX_DUB_SECONDS // 3600} hours.",
        "Longer than films are; what a header claims beyond it is a mistake.",
        "guess",
    ),
)
